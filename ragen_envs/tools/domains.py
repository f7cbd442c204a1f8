"""Three small databases: rows, tools over them, tasks and the calls that solve them. Words are in `domains.toml`."""

import abc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, Literal, get_type_hints

import numpy as np
import tomllib

from ragen_envs.calling.tool import Call, Tool, ToolError, schema_of

WORDS: Mapping[str, Any] = tomllib.loads(Path(__file__).with_name("domains.toml").read_text(encoding="utf-8"))
LENGTHS = (2, 3, 4, 5, 6)
"""How many calls tasks need."""
HOURS = range(9, 17)
QUANTITIES = range(1, 10)
Day = Literal["Monday", "Tuesday", "Wednesday", "Thursday", "Friday"]
Task = tuple[str, tuple[Call, ...]]
"""What is asked for in words, and a shortest way: each call needs only what the text and earlier results say."""


class Row(SimpleNamespace):
    """A row of a table; its fields are attributes."""

    @property
    def cells(self) -> tuple[Any, ...]:
        """The values of its fields, in order."""
        return tuple(vars(self).values())


class Domain(abc.ABC):
    """Rows, tools and tasks of one domain. Its tools are methods.

    Args:
        rng: Draws the rows.
    """

    words: ClassVar[Mapping[str, Any]]
    """Its part of `domains.toml`."""

    def __init__(self, rng: np.random.Generator) -> None:
        self._fill(rng)

    @abc.abstractmethod
    def _fill(self, rng: np.random.Generator) -> None:
        """Draws the rows."""

    @abc.abstractmethod
    def draw(self, rng: np.random.Generator, length: int) -> Task:
        """Draws a task that needs so many calls."""

    @abc.abstractmethod
    def values(self) -> dict[str, Sequence[Any]]:
        """What a random call may give for each argument (first wording)."""

    @abc.abstractmethod
    def state(self) -> Any:
        """What is compared with the state to reach."""

    def tools(self, other: bool) -> tuple[Tool, ...]:
        """The tools, in the second wording if `other` is true."""
        return tuple(replace(tool, run=partial(tool.run, self)) for tool in _described(type(self), other))

    def spelled(self, made: Call, other: bool) -> Call:
        """A call of the first wording in the wording that is played."""
        if not other:
            return made
        words = self.words["tools"][made.name]
        return Call(words["other"][0], {words["arguments"][key][1]: value for key, value in made.arguments.items()})

    def _template(self, rng: np.random.Generator, length: int) -> Mapping[str, Any]:
        """One of the tasks with so many calls."""
        found = [task for task in self.words["tasks"] if len(task["calls"]) == length]
        return found[0] if len(found) == 1 else one(rng, found)

    def _task(self, template: Mapping[str, Any], **facts: Any) -> Task:
        calls = []
        for name, *renamed in map(str.split, template["calls"]):
            sources = dict(pair.split("=") for pair in renamed)
            arguments = self.words["tools"][name]["arguments"]
            calls.append(Call(name, {argument: facts[sources.get(argument, argument)] for argument in arguments}))
        return template["text"].format(**facts), tuple(calls)


@cache
def _described(domain: type[Domain], other: bool) -> tuple[Tool, ...]:
    """The tools of a domain; `run` takes the object as its first argument."""
    found = []
    for name, words in domain.words["tools"].items():
        method = getattr(domain, name)
        hints = get_type_hints(method)
        said, description = words["other"] if other else (name, method.__doc__)
        names, properties = {}, {}
        for argument, texts in words["arguments"].items():
            spelled, text = texts[1:] if other else (argument, texts[0])
            names[spelled] = argument
            properties[spelled] = {**schema_of(hints[argument], name), "description": text}
        parameters = {"type": "object", "properties": properties, "required": list(properties)}
        found.append(Tool(said, description, parameters, partial(_run, method, names), {"type": "string"}))
    return tuple(found)


def _run(method: Callable[..., str], names: Mapping[str, str], domain: Domain, /, **arguments: Any) -> str:
    return method(domain, **{names[key]: value for key, value in arguments.items()})


class Orders(Domain):
    """`customers` (id, name, city), `products` (id, name, price) and `orders` (id, customer, product, quantity)."""

    words = WORDS["orders"]

    def find_customer(self, name: str) -> str:
        """Find a customer by name."""
        found = find("customer", self.customers, name=name)
        return f"customer {found.id}: {name}, {found.city}"

    def list_orders(self, customer_id: int) -> str:
        """List the orders of a customer."""
        find("customer", self.customers, id=customer_id)
        found = sorted(self._orders_of(customer_id), key=lambda each: each[0].id)
        lines = [f"order {order.id}: {order.quantity} x {what.name} (product {what.id})" for order, what in found]
        return "\n".join(lines) or "no orders"

    def find_product(self, name: str) -> str:
        """Find a product by name."""
        found = find("product", self.products, name=name)
        return f"product {found.id}: {name}, price {found.price}"

    def place_order(self, customer_id: int, product_id: int, quantity: int) -> str:
        """Place an order for a customer."""
        find("customer", self.customers, id=customer_id)
        find("product", self.products, id=product_id)
        _check_quantity(quantity)
        number = next_number(self.orders)
        self.orders.append(Row(id=number, customer=customer_id, product=product_id, quantity=quantity))
        return f"order {number} placed"

    def cancel_order(self, order_id: int) -> str:
        """Cancel an order."""
        self.orders.remove(find("order", self.orders, id=order_id))
        return f"order {order_id} cancelled"

    def change_quantity(self, order_id: int, quantity: int) -> str:
        """Change how many pieces an order has."""
        order = find("order", self.orders, id=order_id)
        _check_quantity(quantity)
        order.quantity = quantity
        return f"order {order_id} changed"

    def change_city(self, customer_id: int, city: str) -> str:
        """Change the city of a customer."""
        find("customer", self.customers, id=customer_id).city = city
        return f"customer {customer_id} changed"

    def state(self) -> Any:
        """All customers, and the orders without their numbers: those of new ones depend on what was done before."""
        return sorted(each.cells for each in self.customers), sorted(each.cells[1:] for each in self.orders)

    def values(self) -> dict[str, Sequence[Any]]:
        """What a random call may give for each argument."""
        return {
            "quantity": QUANTITIES,
            "city": self.words["cities"],
            "name": [each.name for each in (*self.customers, *self.products)],
            "customer_id": [each.id for each in self.customers],
            "product_id": [each.id for each in self.products],
            "order_id": sorted(each.id for each in self.orders),
        }

    def draw(self, rng: np.random.Generator, length: int) -> Task:
        """Draws a task that needs so many calls."""
        buyer, other = some(rng, self.customers, 2)
        city = one(rng, [each for each in self.words["cities"] if each != buyer.city])
        order, bought = one(rng, self._orders_of(buyer.id))
        numbers_of = {each.name: each.id for each in self.products}
        wanted = one(rng, [each for each in self.words["products"] if each in numbers_of and each != bought.name])
        quantity = one(rng, [each for each in QUANTITIES[1:] if each != order.quantity])
        template = self._template(rng, length)
        # What the customer has bought is listed with its number, and needs no look at the product.
        listed = [what.name for _, what in self._orders_of(buyer.id)]
        if length == 5 and wanted in listed:
            wanted = one(rng, [each for each in numbers_of if each not in listed])
        its_order, its_product = one(rng, self._orders_of(other.id)) if length == 6 else (order, bought)
        facts = {"name": buyer.name, "customer_id": buyer.id, "order_id": order.id, "product": bought.name}
        others = {"other_id": other.id, "other_order": its_order.id, "other_product": its_product.name}
        new = {"city": city, "wanted": wanted, "product_id": numbers_of[wanted], "quantity": quantity}
        return self._task(template, **facts, other=other.name, **others, **new)

    def _orders_of(self, customer: int) -> list[tuple[Row, Row]]:
        products = {each.id: each for each in self.products}
        return [(order, products[order.product]) for order in self.orders if order.customer == customer]

    def _fill(self, rng: np.random.Generator) -> None:
        names, products = some(rng, self.words["names"], 4), some(rng, self.words["products"], 5)
        free = numbers(rng, 30)
        self.customers = [Row(id=free.pop(), name=name, city=one(rng, self.words["cities"])) for name in names]
        self.products = [Row(id=free.pop(), name=name, price=int(rng.integers(5, 100))) for name in products]
        self.orders = [
            Row(id=free.pop(), customer=customer.id, product=product.id, quantity=one(rng, QUANTITIES))
            for customer in self.customers
            for product in some(rng, self.products, int(rng.integers(1, 4)))
        ]


def _check_quantity(quantity: int) -> None:
    if not 1 <= quantity <= 1000:
        raise ToolError("the quantity must be from 1 to 1000")


class Agenda(Domain):
    """A calendar: `people` (id, name), and `events` (id, person, title, day, hour) that take them an hour each."""

    words = WORDS["agenda"]

    def find_person(self, name: str) -> str:
        """Find a person by name."""
        return f"person {find('person', self.people, name=name).id}: {name}"

    def list_events(self, person_id: int, day: Day) -> str:
        """List the events of a person on a day."""
        find("person", self.people, id=person_id)
        found = sorted(self._on(person_id, day), key=lambda event: int(event.hour))
        return "\n".join(f"event {each.id}: {each.title} at {each.hour}" for each in found) or "no events"

    def free_hours(self, person_id: int, day: Day) -> str:
        """List the hours at which a person has no event on a day."""
        find("person", self.people, id=person_id)
        return f"free at {', '.join(map(str, self._free(person_id, day))) or 'no hour'}"

    def add_event(self, person_id: int, title: str, day: Day, hour: int) -> str:
        """Add an event to the calendar of a person."""
        find("person", self.people, id=person_id)
        self._check_free(person_id, day, hour)
        number = next_number(self.events)
        self.events.append(Row(id=number, person=person_id, title=title, day=day, hour=hour))
        return f"event {number} added"

    def move_event(self, event_id: int, day: Day, hour: int) -> str:
        """Move an event to another time."""
        event = find("event", self.events, id=event_id)
        self._check_free(event.person, day, hour)
        event.day, event.hour = day, hour
        return f"event {event_id} moved"

    def delete_event(self, event_id: int) -> str:
        """Delete an event."""
        self.events.remove(find("event", self.events, id=event_id))
        return f"event {event_id} deleted"

    def state(self) -> Any:
        """The events without their numbers: those of new ones depend on what was done before."""
        return sorted(event.cells[1:] for event in self.events)

    def values(self) -> dict[str, Sequence[Any]]:
        """What a random call may give for each argument."""
        return {
            "day": self.words["days"],
            "hour": HOURS,
            "title": self.words["titles"],
            "name": [person.name for person in self.people],
            "person_id": [person.id for person in self.people],
            "event_id": sorted(event.id for event in self.events),
        }

    def draw(self, rng: np.random.Generator, length: int) -> Task:
        """Draws a task that needs so many calls; one about a first free hour gets more events on its days."""
        person, other = some(rng, self.people, 2)
        event = one(rng, [each for each in self.events if each.person == person.id])
        day = one(rng, [each for each in self.words["days"] if each != event.day])
        taken = [each.title for each in self.events]
        title = one(rng, [each for each in self.words["titles"] if each not in taken])
        facts = {"name": person.name, "person_id": person.id, "other": other.name, "other_id": other.id}
        facts |= {"event_id": event.id, "old_title": event.title, "old_day": event.day, "title": title, "day": day}
        if length == 2:
            facts["hour"] = one(rng, self._free(person.id, day))
        template = self._template(rng, length)
        if "free_hours" in template["calls"]:
            facts["hour"] = self._first_free(rng, person.id, day, title)
        if length == 6:
            facts["other_hour"] = self._first_free(rng, other.id, day, title)
        return self._task(template, **facts)

    def _first_free(self, rng: np.random.Generator, person: int, day: str, title: str) -> int:
        """The first free hour, after events up to a random one. Else it is nearly always 9, and guessing beats looking.

        The new events have other titles than the given one.
        """
        free = self._free(person, day)
        hours = free[: int(rng.integers(len(free)))]
        used = {row.id for row in (*self.people, *self.events)}
        spare = [each for each in numbers(rng, 90) if each not in used]
        titles = some(rng, [each for each in self.words["titles"] if each != title], len(hours))
        for number, other, hour in zip(spare, titles, hours, strict=False):
            self.events.append(Row(id=number, person=person, title=other, day=day, hour=hour))
        return self._free(person, day)[0]

    def _free(self, person: int, day: str) -> list[int]:
        taken = [event.hour for event in self._on(person, day)]
        return [hour for hour in HOURS if hour not in taken]

    def _on(self, person: int, day: str) -> list[Row]:
        return [event for event in self.events if event.person == person and event.day == day]

    def _check_free(self, person: int, day: str, hour: int) -> None:
        if hour not in self._free(person, day):
            raise ToolError("the person is not free then")

    def _fill(self, rng: np.random.Generator) -> None:
        free = numbers(rng, 30)
        self.people = [Row(id=free.pop(), name=name) for name in some(rng, self.words["names"], 4)]
        self.events: list[Row] = []
        titles = some(rng, self.words["titles"], 5)
        slots = [(day, hour) for day in self.words["days"] for hour in HOURS]
        for person in self.people:
            for title, (day, hour) in zip(some(rng, titles, 4), some(rng, slots, 4), strict=True):
                self.events.append(Row(id=free.pop(), person=person.id, title=title, day=day, hour=hour))


class Files(Domain):
    """A tree: `entries` (id, parent, name, kind, content) are folders in a root, and files that say where they go."""

    words = WORDS["files"]

    def find_entry(self, name: str) -> str:
        """Find a file or a folder by name."""
        found = find("entry", self.entries, name=name)
        return f"{found.kind} {found.id}: {name}, in folder {found.parent}"

    def list_folder(self, folder_id: int) -> str:
        """List what is in a folder."""
        find("folder", self.entries, id=folder_id, kind="folder")
        inside = sorted((each for each in self.entries if each.parent == folder_id), key=lambda each: int(each.id))
        return "\n".join(f"{each.kind} {each.id}: {each.name}" for each in inside) or "nothing"

    def read_file(self, file_id: int) -> str:
        """Read what a file says."""
        return str(find("file", self.entries, id=file_id, kind="file").content)

    def move_entry(self, entry_id: int, folder_id: int) -> str:
        """Move a file or a folder into a folder."""
        entry = self._movable(entry_id)
        above: int | None = find("folder", self.entries, id=folder_id, kind="folder").id
        while above is not None:
            if above == entry_id:
                raise ToolError("a folder cannot be in itself")
            above = find("folder", self.entries, id=above).parent
        entry.parent = folder_id
        return f"{entry_id} moved"

    def rename_entry(self, entry_id: int, name: str) -> str:
        """Give a file or a folder another name."""
        entry = self._movable(entry_id)
        if any(each.name == name for each in self.entries if each is not entry):
            raise ToolError("the name is taken")
        entry.name = name
        return f"{entry_id} renamed"

    def delete_entry(self, entry_id: int) -> str:
        """Delete a file or an empty folder."""
        entry = self._movable(entry_id)
        if any(each.parent == entry_id for each in self.entries):
            raise ToolError("the folder is not empty")
        self.entries.remove(entry)
        return f"{entry_id} deleted"

    def state(self) -> Any:
        """All entries."""
        return sorted(entry.cells for entry in self.entries)  # by their numbers, which differ

    def values(self) -> dict[str, Sequence[Any]]:
        """What a random call may give for each argument."""
        entries = sorted(self.entries, key=lambda entry: int(entry.id))
        return {
            "name": [*(entry.name for entry in entries), *self.words["new_names"]],
            "entry_id": [entry.id for entry in entries],
            "folder_id": [entry.id for entry in entries if entry.kind == "folder"],
            "file_id": [entry.id for entry in entries if entry.kind == "file"],
        }

    def draw(self, rng: np.random.Generator, length: int) -> Task:
        """Draws a task that needs so many calls."""
        file, other = some(rng, [entry for entry in self.entries if entry.kind == "file"], 2)
        folders = [entry for entry in self.entries if entry.kind == "folder" and entry.parent is not None]
        into = one(rng, [each for each in folders if each.id not in (file.parent, other.parent)])
        home = find("folder", folders, name=file.content.removeprefix("belongs in "))
        facts = {"name": file.name, "entry_id": file.id, "file_id": file.id, "other": other.name, "other_id": other.id}
        facts |= {"into": into.name, "folder_id": into.id, "home": home.name, "home_id": home.id}
        facts["new"] = one(rng, self.words["new_names"]) if length in (2, 6) else ""
        return self._task(self._template(rng, length), **facts)

    def _movable(self, number: int) -> Row:
        return find("entry", [entry for entry in self.entries if entry.parent is not None], id=number)

    def _fill(self, rng: np.random.Generator) -> None:
        free = numbers(rng, 20)
        root = Row(id=free.pop(), parent=None, name="home", kind="folder", content=None)
        names = some(rng, self.words["folders"], 4)
        folders = [Row(id=free.pop(), parent=root.id, name=name, kind="folder", content=None) for name in names]
        self.entries = [root, *folders]
        for name in some(rng, self.words["files"], 6):
            parent = one(rng, folders)
            content = f"belongs in {one(rng, [each for each in folders if each is not parent]).name}"
            self.entries.append(Row(id=free.pop(), parent=parent.id, name=name, kind="file", content=content))


def find(what: str, rows: Sequence[Row], **wanted: object) -> Row:
    """The first row with these values in the fields of these names.

    Raises:
        ToolError: If there is none; calls it `what`.
    """
    for row in rows:
        if all(getattr(row, name) == value for name, value in wanted.items()):
            return row
    raise ToolError(f"there is no such {what}")


def next_number(rows: Sequence[Row]) -> int:
    """The identifier of a new row; those drawn at the start have two digits."""
    return max([99, *(row.id for row in rows)]) + 1


def numbers(rng: np.random.Generator, count: int) -> list[int]:
    """So many different numbers of two digits, for identifiers."""
    return [int(number) for number in 10 + rng.permutation(90)[:count]]


def some(rng: np.random.Generator, values: Sequence[Any], count: int) -> list[Any]:
    """So many different values, in random order."""
    return [values[place] for place in rng.permutation(len(values))[:count]]


def one(rng: np.random.Generator, values: Sequence[Any]) -> Any:
    """One of the values."""
    return values[int(rng.integers(len(values)))]
