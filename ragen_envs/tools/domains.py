"""Three small databases: their rows and rules. What their tools do, their tasks and all words are in `domains.toml`."""

import abc
from collections.abc import Mapping, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np

from ragen_envs.calling.tool import Call, Tool, ToolError
from ragen_envs.wording import phrases

WORDS: Mapping[str, Any] = phrases(__file__, "domains")
LENGTHS = (2, 3, 4, 5, 6)
"""How many calls tasks need."""
Task = tuple[str, tuple[Call, ...]]
"""What is asked for in words, and a shortest way: each call needs only what the text and earlier results say."""


class Row(SimpleNamespace):
    """A row of a table; its fields are attributes. `customer_id` is the `id` of a row of the table "customer"."""


class Domain(abc.ABC):
    """Rows, tools and tasks of one domain.

    Args:
        rng: Draws the rows.

    Attributes:
        words: Its part of `domains.toml`.
        tables: Its rows by their kind.
    """

    words: ClassVar[Mapping[str, Any]]

    def __init__(self, rng: np.random.Generator) -> None:
        self.tables: dict[str, list[Row]] = {}
        self._fill(rng)

    @abc.abstractmethod
    def _fill(self, rng: np.random.Generator) -> None:
        """Draws the rows."""

    @abc.abstractmethod
    def _check(self, does: Mapping[str, Any], rows: Mapping[str, Row], arguments: Mapping[str, Any]) -> None:
        """Raises a `ToolError` if a change is against the rules; `rows` are those that arguments refer to."""

    @abc.abstractmethod
    def draw(self, rng: np.random.Generator, length: int) -> Task:
        """Draws a task that needs so many calls."""

    def state(self) -> dict[str, list[tuple[Any, ...]]]:
        """What is compared with the state to reach: the fields of all rows by their kind, in one order.

        Where rows can be added they have no numbers, because a new one's depends on what was done before.
        """
        found = {kind: sorted(tuple(vars(row).values()) for row in rows) for kind, rows in self.tables.items()}
        for kind in {does["add"] for does in self.words["tools"].values() if "add" in does}:
            found[kind] = sorted(row[1:] for row in found[kind])
        return found

    def values(self, argument: str) -> Sequence[Any]:
        """What a random call may give for an argument (first wording); at least one value."""
        if argument in self.words["values"]:
            return list(self.words["values"][argument])
        if argument.endswith("_id"):
            return [row.id for row in self._in_order(argument.removesuffix("_id"))] or [0]
        named = [row.name for kind in self.tables for row in self._in_order(kind) if hasattr(row, "name")]
        return [*named, *self.words.get("new_names", ())]

    def _in_order(self, kind: str) -> list[Row]:
        rows = self.rows(kind)
        return sorted(rows, key=lambda row: int(row.id)) if kind in self.words["sorted"] else rows

    def changes(self, name: str) -> bool:
        """Whether a tool (first wording) changes rows."""
        return not self.words["tools"][name].keys().isdisjoint(("add", "set", "remove"))

    def rows(self, kind: str) -> list[Row]:
        """All rows of a kind."""
        return self.tables[kind]

    def row(self, kind: str, number: int) -> Row:
        """The row with a number."""
        return find(kind, self.rows(kind), id=number)

    def tools(self, other: bool) -> tuple[Tool, ...]:
        """The tools, in the second wording if `other` is true."""
        found = []
        for name, words in self.words["tools"].items():
            said, description = words["other"] if other else (name, words["description"])
            names, properties = {}, {}
            for argument, texts in words["arguments"].items():
                spelled, text = texts[1:] if other else (argument, texts[0])
                names[spelled] = argument
                plain = {"type": "integer" if argument.endswith("_id") else "string"}
                properties[spelled] = {**WORDS["types"].get(argument, plain), "description": text}
            parameters = {"type": "object", "properties": properties, "required": list(properties)}
            found.append(Tool(said, description, parameters, partial(self._run, name, names), {"type": "string"}))
        return tuple(found)

    def _run(self, name: str, names: Mapping[str, str], /, **arguments: Any) -> str:
        return self.carry_out(Call(name, {names[key]: value for key, value in arguments.items()}))

    def spelled(self, made: Call, other: bool) -> Call:
        """A call of the first wording in the wording that is played."""
        if not other:
            return made
        words = self.words["tools"][made.name]
        return Call(words["other"][0], {words["arguments"][key][1]: value for key, value in made.arguments.items()})

    def carry_out(self, made: Call) -> str:
        """The result of a call in the first wording.

        Raises:
            ToolError: If it cannot be done.
        """
        does = self.words["tools"][made.name]
        arguments = {key: made.arguments[key] for key in does["arguments"]}  # in the order of fields
        rows = self._referred(arguments)
        listed = ""
        if kind := does.get("find"):
            rows[kind] = find(kind, self.rows(kind), **arguments)
        elif kind := does.get("list"):
            found = sorted(matching(self.rows(kind), **arguments), key=lambda row: int(getattr(row, does["by"])))
            lines = [does["each"].format(**vars(row), **self._referred(vars(row))) for row in found]
            listed = does.get("separator", "\n").join(lines) or does["none"]
        elif self.changes(made.name):
            self._check(does, rows, arguments)
        if kind := does.get("add"):
            rows[kind] = Row(id=max([99, *(row.id for row in self.rows(kind))]) + 1, **arguments)
            self.rows(kind).append(rows[kind])
        elif kind := does.get("set"):
            vars(rows[kind]).update({key: value for key, value in arguments.items() if key != f"{kind}_id"})
        elif kind := does.get("remove"):
            self.rows(kind).remove(rows[kind])
        return str(does["text"].format(listed=listed, **rows))

    def _referred(self, fields: Mapping[str, Any]) -> dict[str, Row]:
        kinds = [key.removesuffix("_id") for key in fields if key.endswith("_id")]
        return {kind: self.row(kind, fields[f"{kind}_id"]) for kind in kinds}

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


class Orders(Domain):
    """A shop: rows "customer" (id, name, city), "product" (id, name, price), "order" (id, who, what, quantity)."""

    words = WORDS["orders"]

    def _check(self, does: Mapping[str, Any], rows: Mapping[str, Row], arguments: Mapping[str, Any]) -> None:
        if not 1 <= arguments.get("quantity", 1) <= 1000:
            raise ToolError("the quantity must be from 1 to 1000")

    def draw(self, rng: np.random.Generator, length: int) -> Task:
        """Draws a task that needs so many calls."""
        buyer, other = some(rng, self.rows("customer"), 2)
        city = one(rng, [each for each in self.words["values"]["city"] if each != buyer.city])
        bought = matching(self.rows("order"), customer_id=buyer.id)
        order = one(rng, bought)
        names = {each.id: each.name for each in self.rows("product")}
        product = names[order.product_id]
        wanted = one(rng, [each for each in self.words["products"] if each in names.values() and each != product])
        quantity = one(rng, [each for each in self.words["values"]["quantity"][1:] if each != order.quantity])
        template = self._template(rng, length)
        # What the customer has bought is listed with its number, and needs no look at the product.
        listed = [names[each.product_id] for each in bought]
        if length == 5 and wanted in listed:
            wanted = one(rng, [each for each in names.values() if each not in listed])
        others = one(rng, matching(self.rows("order"), customer_id=other.id)) if length == 6 else order
        facts = {"name": buyer.name, "customer_id": buyer.id, "order_id": order.id, "product": product, "city": city}
        facts |= {"wanted": wanted, "product_id": find("product", self.rows("product"), name=wanted).id}
        facts |= {"other_id": other.id, "other_order": others.id, "other_product": names[others.product_id]}
        return self._task(template, **facts, other=other.name, quantity=quantity)

    def _fill(self, rng: np.random.Generator) -> None:
        values = self.words["values"]
        names, products = some(rng, self.words["names"], 4), some(rng, self.words["products"], 5)
        free = numbers(rng, 30)
        customers = [Row(id=free.pop(), name=name, city=one(rng, values["city"])) for name in names]
        sold = [Row(id=free.pop(), name=name, price=int(rng.integers(5, 100))) for name in products]
        orders = [
            Row(id=free.pop(), customer_id=customer.id, product_id=product.id, quantity=one(rng, values["quantity"]))
            for customer in customers
            for product in some(rng, sold, int(rng.integers(1, 4)))
        ]
        self.tables = {"customer": customers, "product": sold, "order": orders}


class Agenda(Domain):
    """A calendar: rows "person" (id, name), "event" (id, person, title, day, hour), and "slot" for each free hour."""

    words = WORDS["agenda"]

    def rows(self, kind: str) -> list[Row]:
        """All rows of a kind."""
        if kind != "slot":
            return super().rows(kind)
        taken = [(event.person_id, event.day, event.hour) for event in self.rows("event")]
        people, days, hours = self.rows("person"), self.words["values"]["day"], self.words["values"]["hour"]
        slots = ((person.id, day, hour) for person in people for day in days for hour in hours)
        return [Row(person_id=slot[0], day=slot[1], hour=slot[2]) for slot in slots if slot not in taken]

    def _check(self, does: Mapping[str, Any], rows: Mapping[str, Row], arguments: Mapping[str, Any]) -> None:
        if "hour" in arguments:
            person = rows["person"].id if "person" in rows else rows["event"].person_id
            if arguments["hour"] not in self._free(person, arguments["day"]):
                raise ToolError("the person is not free then")

    def draw(self, rng: np.random.Generator, length: int) -> Task:
        """Draws a task that needs so many calls; one about a first free hour gets more events on its days."""
        person, other = some(rng, self.rows("person"), 2)
        event = one(rng, matching(self.rows("event"), person_id=person.id))
        day = one(rng, [each for each in self.words["values"]["day"] if each != event.day])
        taken = [each.title for each in self.rows("event")]
        title = one(rng, [each for each in self.words["values"]["title"] if each not in taken])
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
        used = {row.id for row in (*self.rows("person"), *self.rows("event"))}
        spare = [each for each in numbers(rng, 90) if each not in used]
        titles = some(rng, [each for each in self.words["values"]["title"] if each != title], len(hours))
        for number, other, hour in zip(spare, titles, hours, strict=False):
            self.rows("event").append(Row(id=number, person_id=person, title=other, day=day, hour=hour))
        return self._free(person, day)[0]

    def _free(self, person: int, day: str) -> list[int]:
        return [slot.hour for slot in matching(self.rows("slot"), person_id=person, day=day)]

    def _fill(self, rng: np.random.Generator) -> None:
        free = numbers(rng, 30)
        people = [Row(id=free.pop(), name=name) for name in some(rng, self.words["names"], 4)]
        values = self.words["values"]
        titles = some(rng, values["title"], 5)
        slots = [(day, hour) for day in values["day"] for hour in values["hour"]]
        events = [
            Row(id=free.pop(), person_id=person.id, title=title, day=day, hour=hour)
            for person in people
            for title, (day, hour) in zip(some(rng, titles, 4), some(rng, slots, 4), strict=True)
        ]
        self.tables = {"person": people, "event": events}


class Files(Domain):
    """A tree: rows "entry" (id, folder, name, kind, content), folders in a root and files that say where they go."""

    words = WORDS["files"]

    def rows(self, kind: str) -> list[Row]:
        """All rows of a kind."""
        return self.tables["entry"] if kind == "entry" else matching(self.tables["entry"], kind=kind)

    def row(self, kind: str, number: int) -> Row:
        """The row with a number. The root is a folder, and no entry that could be changed."""
        return find(kind, [row for row in self.rows(kind) if kind != "entry" or row.folder_id is not None], id=number)

    def _check(self, does: Mapping[str, Any], rows: Mapping[str, Row], arguments: Mapping[str, Any]) -> None:
        entry, above = rows["entry"], rows.get("folder")
        while above is not None:
            if above is entry:
                raise ToolError("a folder cannot be in itself")
            above = None if above.folder_id is None else self.row("folder", above.folder_id)
        if any(each.name == arguments.get("name") for each in self.rows("entry") if each is not entry):
            raise ToolError("the name is taken")
        if "remove" in does and matching(self.rows("entry"), folder_id=entry.id):
            raise ToolError("the folder is not empty")

    def draw(self, rng: np.random.Generator, length: int) -> Task:
        """Draws a task that needs so many calls."""
        file, other = some(rng, self.rows("file"), 2)
        folders = [folder for folder in self.rows("folder") if folder.folder_id is not None]
        into = one(rng, [each for each in folders if each.id not in (file.folder_id, other.folder_id)])
        home = find("folder", folders, name=file.content.removeprefix("belongs in "))
        facts = {"name": file.name, "entry_id": file.id, "file_id": file.id, "other": other.name, "other_id": other.id}
        facts |= {"into": into.name, "folder_id": into.id, "home": home.name, "home_id": home.id}
        facts["new"] = one(rng, self.words["new_names"]) if length in (2, 6) else ""
        return self._task(self._template(rng, length), **facts)

    def _fill(self, rng: np.random.Generator) -> None:
        free = numbers(rng, 20)
        root = Row(id=free.pop(), folder_id=None, name="home", kind="folder", content=None)
        names = some(rng, self.words["folders"], 4)
        folders = [Row(id=free.pop(), folder_id=root.id, name=name, kind="folder", content=None) for name in names]
        entries = [root, *folders]
        for name in some(rng, self.words["files"], 6):
            folder = one(rng, folders)
            content = f"belongs in {one(rng, [each for each in folders if each is not folder]).name}"
            entries.append(Row(id=free.pop(), folder_id=folder.id, name=name, kind="file", content=content))
        self.tables = {"entry": entries}


def matching(rows: Sequence[Row], **wanted: object) -> list[Row]:
    """The rows with these values in the fields of these names."""
    return [row for row in rows if all(getattr(row, name) == value for name, value in wanted.items())]


def find(kind: str, rows: Sequence[Row], **wanted: object) -> Row:
    """The first row with these values.

    Raises:
        ToolError: If there is none.
    """
    if found := matching(rows, **wanted):
        return found[0]
    raise ToolError(f"there is no such {kind}")


def numbers(rng: np.random.Generator, count: int) -> list[int]:
    """So many different numbers of two digits, for identifiers."""
    return [int(number) for number in 10 + rng.permutation(90)[:count]]


def some(rng: np.random.Generator, values: Sequence[Any], count: int) -> list[Any]:
    """So many different values, in random order."""
    return [values[place] for place in rng.permutation(len(values))[:count]]


def one(rng: np.random.Generator, values: Sequence[Any]) -> Any:
    """One of the values."""
    return values[int(rng.integers(len(values)))]
