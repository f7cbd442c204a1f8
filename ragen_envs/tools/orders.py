"""The orders of a shop: customers, products, and what was ordered."""

from collections.abc import Sequence
from dataclasses import astuple, dataclass, replace
from typing import Any, ClassVar

import numpy as np

from ragen_envs.calling.tool import ToolError
from ragen_envs.tools.domain import Domain, Task, call, find, numbers, one, some

NAMES = ("Anna", "Ben", "Cora", "Dan", "Ella", "Finn", "Gus", "Hana", "Ivo", "Jane")
CITIES = ("Oslo", "Rome", "Lima", "Cairo", "Delhi", "Paris", "Quito", "Tokyo")
PRODUCTS = ("mug", "lamp", "chair", "clock", "kettle", "pillow", "radio", "towel")
MOST = 9


@dataclass
class Customer:
    """Who orders."""

    id: int
    name: str
    city: str


@dataclass
class Product:
    """What is sold."""

    id: int
    name: str
    price: int


@dataclass
class Order:
    """So many of a product for a customer; both by their numbers."""

    id: int
    customer: int
    product: int
    quantity: int


class Orders(Domain):
    """Customers, products and orders."""

    customers: list[Customer]
    products: list[Product]
    orders: list[Order]
    purpose: ClassVar[str] = "Manage the orders of a shop."
    lookups: ClassVar[tuple[str, ...]] = ("find_customer", "list_orders", "find_product")
    changes: ClassVar[tuple[str, ...]] = ("place_order", "cancel_order", "change_quantity", "change_city")

    def find_customer(self, name: str) -> str:
        """Find a customer by name.

        Args:
            name: The customer's name.
        """
        found = find("customer", self.customers, name=name)
        return f"customer {found.id}: {name}, {found.city}"

    def list_orders(self, customer_id: int) -> str:
        """List the orders of a customer.

        Args:
            customer_id: Number of the customer.
        """
        find("customer", self.customers, id=customer_id)
        found = sorted(self._orders_of(customer_id), key=lambda each: each[0].id)
        lines = [f"order {order.id}: {order.quantity} x {what.name} (product {what.id})" for order, what in found]
        return "\n".join(lines) or "no orders"

    def find_product(self, name: str) -> str:
        """Find a product by name.

        Args:
            name: The product's name.
        """
        found = find("product", self.products, name=name)
        return f"product {found.id}: {name}, price {found.price}"

    def place_order(self, customer_id: int, product_id: int, quantity: int) -> str:
        """Place an order for a customer.

        Args:
            customer_id: Number of the customer.
            product_id: Number of the product.
            quantity: How many.
        """
        find("customer", self.customers, id=customer_id)
        find("product", self.products, id=product_id)
        _check_quantity(quantity)
        number = max([99, *(order.id for order in self.orders)]) + 1
        self.orders.append(Order(number, customer_id, product_id, quantity))
        return f"order {number} placed"

    def cancel_order(self, order_id: int) -> str:
        """Cancel an order.

        Args:
            order_id: Number of the order.
        """
        self.orders.remove(find("order", self.orders, id=order_id))
        return f"order {order_id} cancelled"

    def change_quantity(self, order_id: int, quantity: int) -> str:
        """Change how many pieces an order has.

        Args:
            order_id: Number of the order.
            quantity: How many.
        """
        order = find("order", self.orders, id=order_id)
        _check_quantity(quantity)
        order.quantity = quantity
        return f"order {order_id} changed"

    def change_city(self, customer_id: int, city: str) -> str:
        """Change the city of a customer.

        Args:
            customer_id: Number of the customer.
            city: The new city.
        """
        find("customer", self.customers, id=customer_id).city = city
        return f"customer {customer_id} changed"

    def state(self) -> Any:
        """All customers, and the orders without their numbers: those of new ones depend on what was done before."""
        return sorted(map(astuple, self.customers)), sorted(astuple(order)[1:] for order in self.orders)

    def values(self, argument: str) -> Sequence[Any]:
        """What a random call may give for an argument."""
        found: dict[str, Sequence[Any]] = {
            "quantity": range(1, MOST + 1),
            "city": CITIES,
            "name": [*(each.name for each in self.customers), *(each.name for each in self.products)],
            "customer_id": [each.id for each in self.customers],
            "product_id": [each.id for each in self.products],
            "order_id": sorted(each.id for each in self.orders),
        }
        return found[argument] or [0]

    def draw(self, rng: np.random.Generator, length: int) -> Task:
        """Draws a task that needs so many calls."""
        buyer, other = some(rng, self.customers, 2)
        customer, name = buyer.id, buyer.name
        new_city = one(rng, [each for each in CITIES if each != buyer.city])
        order, bought = one(rng, self._orders_of(customer))
        product = bought.name
        numbered = {each.name: each.id for each in self.products}
        wanted = one(rng, [each for each in PRODUCTS if each in numbered and each != product])
        pieces = one(rng, [each for each in range(2, MOST + 1) if each != order.quantity])
        finding, listing = call("find_customer", name=name), call("list_orders", customer_id=customer)
        cancel, move = call("cancel_order", order_id=order.id), call("change_city", customer_id=customer, city=new_city)
        look = call("find_product", name=wanted)
        place = call("place_order", customer_id=customer, product_id=numbered[wanted], quantity=pieces)
        if length == 2:
            return Task(f"{name} has moved to {new_city}. Change the city.", (finding, move))
        if length == 3:
            more = call("change_quantity", order_id=order.id, quantity=pieces)
            return one(
                rng,
                (
                    Task(f"Cancel the order of the {product} by {name}.", (finding, listing, cancel)),
                    Task(f"Order {pieces} x {wanted} for {name}.", (finding, look, place)),
                    Task(f"Change the order of the {product} by {name} to {pieces} pieces.", (finding, listing, more)),
                ),
            )
        if length == 4:
            text = f"{name} has moved to {new_city} and does not want the {product}. Change the city, cancel the order."
            return Task(text, (finding, listing, cancel, move))
        if length == 5:
            # What the customer has bought is listed with its number, and needs no look at the product.
            listed = [each.name for _, each in self._orders_of(customer)]
            if wanted in listed:
                wanted = one(rng, [each for each in numbered if each not in listed])
                look = call("find_product", name=wanted)
                place = replace(place, arguments={**place.arguments, "product_id": numbered[wanted]})
            text = f"{name} wants {pieces} x {wanted} instead of the {product}. Cancel the order and place a new one."
            return Task(text, (finding, listing, look, cancel, place))
        its_order, its_product = one(rng, self._orders_of(other.id))
        text = f"Cancel the order of the {product} by {name} and that of the {its_product.name} by {other.name}."
        also = (call("find_customer", name=other.name), call("list_orders", customer_id=other.id))
        return Task(text, (finding, listing, cancel, *also, call("cancel_order", order_id=its_order.id)))

    def _orders_of(self, customer: int) -> list[tuple[Order, Product]]:
        products = {each.id: each for each in self.products}
        return [(order, products[order.product]) for order in self.orders if order.customer == customer]

    def _fill(self, rng: np.random.Generator) -> None:
        names, products = some(rng, NAMES, 4), some(rng, PRODUCTS, 5)
        free = numbers(rng, 30)
        self.customers = [Customer(free.pop(), name, one(rng, CITIES)) for name in names]
        self.products = [Product(free.pop(), name, int(rng.integers(5, 100))) for name in products]
        self.orders = [
            Order(free.pop(), customer.id, product.id, int(rng.integers(1, MOST + 1)))
            for customer in self.customers
            for product in some(rng, self.products, int(rng.integers(1, 4)))
        ]


def _check_quantity(quantity: int) -> None:
    if not 1 <= quantity <= 1000:
        raise ToolError("the quantity must be from 1 to 1000")
