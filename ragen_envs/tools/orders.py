"""The orders of a shop: customers, products, and what was ordered."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from ragen_envs.calling.tool import ToolError
from ragen_envs.tools.domain import Domain, Task, Words, call, numbers, one, some

NAMES = ("Anna", "Ben", "Cora", "Dan", "Ella", "Finn", "Gus", "Hana", "Ivo", "Jane")
CITIES = ("Oslo", "Rome", "Lima", "Cairo", "Delhi", "Paris", "Quito", "Tokyo")
PRODUCTS = ("mug", "lamp", "chair", "clock", "kettle", "pillow", "radio", "towel")
MOST = 9


class Orders(Domain):
    """Customers, products and orders."""

    script: ClassVar[str] = """
        CREATE TABLE customers (id INTEGER, name TEXT, city TEXT);
        CREATE TABLE products (id INTEGER, name TEXT, price INTEGER);
        CREATE TABLE orders (id INTEGER, customer INTEGER, product INTEGER, quantity INTEGER);
    """
    purpose: ClassVar[str] = "Manage the orders of a shop."
    # Without the numbers of orders: those of new ones depend on what was done before.
    contents: ClassVar[tuple[str, ...]] = (
        "SELECT * FROM customers ORDER BY id",
        "SELECT customer, product, quantity FROM orders ORDER BY customer, product, quantity",
    )
    lookups: ClassVar[tuple[str, ...]] = ("find_customer", "list_orders", "find_product")
    other_words: ClassVar[Words] = {
        "find_customer": ("who_is", "Look up a client.", {"name": ("client", "What the client is called.")}),
        "list_orders": ("purchases_of", "Show what a client bought.", {"customer_id": ("client_no", "Of the client.")}),
        "find_product": ("article", "Look up an article.", {"name": ("label", "What the article is called.")}),
        "place_order": (
            "buy_for",
            "Buy an article for a client.",
            {
                "customer_id": ("client_no", "Of the client."),
                "product_id": ("article_no", "Of the article."),
                "quantity": ("pieces", "How many pieces."),
            },
        ),
        "cancel_order": ("drop_purchase", "Drop a purchase.", {"order_id": ("purchase_no", "Of the purchase.")}),
        "change_quantity": (
            "set_pieces",
            "Set how many pieces a purchase has.",
            {"order_id": ("purchase_no", "Of the purchase."), "quantity": ("pieces", "How many pieces.")},
        ),
        "change_city": (
            "relocate",
            "Note that a client lives elsewhere.",
            {"customer_id": ("client_no", "Of the client."), "city": ("town", "Where the client lives now.")},
        ),
    }

    @property
    def functions(self) -> tuple[Callable[..., Any], ...]:
        """The tools in their first wording."""
        looking = (self.find_customer, self.list_orders, self.find_product)
        return (*looking, self.place_order, self.cancel_order, self.change_quantity, self.change_city)

    def find_customer(self, name: str) -> str:
        """Find a customer by name.

        Args:
            name: The customer's name.
        """
        number, city = self._only("SELECT id, city FROM customers WHERE name = ?", name, what="customer")
        return f"customer {number}: {name}, {city}"

    def list_orders(self, customer_id: int) -> str:
        """List the orders of a customer.

        Args:
            customer_id: Number of the customer.
        """
        self._only("SELECT id FROM customers WHERE id = ?", customer_id, what="customer")
        found = self.database.rows(
            "SELECT o.id, o.quantity, p.name, p.id FROM orders o JOIN products p ON p.id = o.product "
            "WHERE o.customer = ? ORDER BY o.id",
            customer_id,
        )
        lines = [f"order {number}: {count} x {name} (product {product})" for number, count, name, product in found]
        return "\n".join(lines) or "no orders"

    def find_product(self, name: str) -> str:
        """Find a product by name.

        Args:
            name: The product's name.
        """
        number, price = self._only("SELECT id, price FROM products WHERE name = ?", name, what="product")
        return f"product {number}: {name}, price {price}"

    def place_order(self, customer_id: int, product_id: int, quantity: int) -> str:
        """Place an order for a customer.

        Args:
            customer_id: Number of the customer.
            product_id: Number of the product.
            quantity: How many.
        """
        self._only("SELECT id FROM customers WHERE id = ?", customer_id, what="customer")
        self._only("SELECT id FROM products WHERE id = ?", product_id, what="product")
        _check_quantity(quantity)
        number = self.database.next_number("orders")
        self.database.insert("orders", [(number, customer_id, product_id, quantity)])
        return f"order {number} placed"

    def cancel_order(self, order_id: int) -> str:
        """Cancel an order.

        Args:
            order_id: Number of the order.
        """
        self._only("SELECT id FROM orders WHERE id = ?", order_id, what="order")
        self.database.change("DELETE FROM orders WHERE id = ?", order_id)
        return f"order {order_id} cancelled"

    def change_quantity(self, order_id: int, quantity: int) -> str:
        """Change how many pieces an order has.

        Args:
            order_id: Number of the order.
            quantity: How many.
        """
        self._only("SELECT id FROM orders WHERE id = ?", order_id, what="order")
        _check_quantity(quantity)
        self.database.change("UPDATE orders SET quantity = ? WHERE id = ?", quantity, order_id)
        return f"order {order_id} changed"

    def change_city(self, customer_id: int, city: str) -> str:
        """Change the city of a customer.

        Args:
            customer_id: Number of the customer.
            city: The new city.
        """
        self._only("SELECT id FROM customers WHERE id = ?", customer_id, what="customer")
        self.database.change("UPDATE customers SET city = ? WHERE id = ?", city, customer_id)
        return f"customer {customer_id} changed"

    def values(self, argument: str) -> Sequence[Any]:
        """What a random call may give for an argument."""
        if argument == "quantity":
            return range(1, MOST + 1)
        if argument == "city":
            return CITIES
        queries = {
            "name": "SELECT name FROM customers UNION ALL SELECT name FROM products",
            "customer_id": "SELECT id FROM customers",
            "product_id": "SELECT id FROM products",
            "order_id": "SELECT id FROM orders ORDER BY id",
        }
        return [value for (value,) in self.database.rows(queries[argument])] or [0]

    def draw(self, rng: np.random.Generator, length: int) -> Task:
        """Draws a task that needs so many calls."""
        name, other = some(rng, [name for (name,) in self.database.rows("SELECT name FROM customers")], 2)
        customer, city = self._only("SELECT id, city FROM customers WHERE name = ?", name, what="customer")
        new_city = one(rng, [each for each in CITIES if each != city])
        order, product, count = one(rng, self._orders_of(customer))
        wanted = one(rng, [each for each in PRODUCTS if each in self._products() and each != product])
        pieces = one(rng, [each for each in range(2, MOST + 1) if each != count])
        find, listing = call("find_customer", name=name), call("list_orders", customer_id=customer)
        cancel, move = call("cancel_order", order_id=order), call("change_city", customer_id=customer, city=new_city)
        look = call("find_product", name=wanted)
        place = call("place_order", customer_id=customer, product_id=self._products()[wanted], quantity=pieces)
        if length == 2:
            return Task(f"{name} has moved to {new_city}. Change the city.", (find, move))
        if length == 3:
            more = call("change_quantity", order_id=order, quantity=pieces)
            return one(
                rng,
                (
                    Task(f"Cancel the order of the {product} by {name}.", (find, listing, cancel)),
                    Task(f"Order {pieces} x {wanted} for {name}.", (find, look, place)),
                    Task(f"Change the order of the {product} by {name} to {pieces} pieces.", (find, listing, more)),
                ),
            )
        if length == 4:
            text = f"{name} has moved to {new_city} and does not want the {product}. Change the city, cancel the order."
            return Task(text, (find, listing, cancel, move))
        if length == 5:
            # What the customer has bought is listed with its number, and needs no look at the product.
            bought = [each for _, each, _ in self._orders_of(customer)]
            if wanted in bought:
                wanted = one(rng, [each for each in self._products() if each not in bought])
                look = call("find_product", name=wanted)
                place = replace(place, arguments={**place.arguments, "product_id": self._products()[wanted]})
            text = f"{name} wants {pieces} x {wanted} instead of the {product}. Cancel the order and place a new one."
            return Task(text, (find, listing, look, cancel, place))
        (second,) = self._only("SELECT id FROM customers WHERE name = ?", other, what="customer")
        its_order, its_product, _ = one(rng, self._orders_of(second))
        finding = (call("find_customer", name=other), call("list_orders", customer_id=second))
        text = f"Cancel the order of the {product} by {name} and that of the {its_product} by {other}."
        return Task(text, (find, listing, cancel, *finding, call("cancel_order", order_id=its_order)))

    def _orders_of(self, customer: int) -> list[tuple[Any, ...]]:
        """Number, product's name and quantity of each order."""
        return self.database.rows(
            "SELECT o.id, p.name, o.quantity FROM orders o JOIN products p ON p.id = o.product WHERE o.customer = ?",
            customer,
        )

    def _products(self) -> dict[str, int]:
        return {name: number for number, name in self.database.rows("SELECT id, name FROM products")}

    def _fill(self, rng: np.random.Generator) -> None:
        names, products = some(rng, NAMES, 4), some(rng, PRODUCTS, 5)
        free = numbers(rng, 30)
        customers = [(free.pop(), name, one(rng, CITIES)) for name in names]
        goods = [(free.pop(), name, int(rng.integers(5, 100))) for name in products]
        self.database.insert("customers", customers)
        self.database.insert("products", goods)
        for customer, _, _ in customers:
            bought = some(rng, goods, int(rng.integers(1, 4)))
            rows = [(free.pop(), customer, product, int(rng.integers(1, MOST + 1))) for product, _, _ in bought]
            self.database.insert("orders", rows)


def _check_quantity(quantity: int) -> None:
    if not 1 <= quantity <= 1000:
        raise ToolError("the quantity must be from 1 to 1000")
