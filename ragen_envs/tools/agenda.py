"""A calendar: people, and what they do at which hour of which day."""

from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from ragen_envs.calling.tool import Call, ToolError
from ragen_envs.tools.domain import Domain, Task, call, find, numbers, one, some
from ragen_envs.tools.orders import NAMES

DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday")
HOURS = tuple(range(9, 17))
TITLES = ("review", "lunch", "budget", "training", "interview", "planning", "demo", "survey")

Day = Literal["Monday", "Tuesday", "Wednesday", "Thursday", "Friday"]


@dataclass
class Person:
    """Whose calendar it is."""

    id: int
    name: str


@dataclass
class Event:
    """What a person, by number, does for an hour."""

    id: int
    person: int
    title: str
    day: str
    hour: int


class Agenda(Domain):
    """People and events."""

    people: list[Person]
    events: list[Event]
    purpose: ClassVar[str] = "Manage the calendar of a team. Hours are from 9 to 16."
    lookups: ClassVar[tuple[str, ...]] = ("find_person", "list_events", "free_hours")
    changes: ClassVar[tuple[str, ...]] = ("add_event", "move_event", "delete_event")

    def find_person(self, name: str) -> str:
        """Find a person by name.

        Args:
            name: The person's name.
        """
        return f"person {find('person', self.people, name=name).id}: {name}"

    def list_events(self, person_id: int, day: Day) -> str:
        """List the events of a person on a day.

        Args:
            person_id: Number of the person.
            day: Day of the week.
        """
        find("person", self.people, id=person_id)
        found = sorted(self._on(person_id, day), key=lambda event: event.hour)
        return "\n".join(f"event {each.id}: {each.title} at {each.hour}" for each in found) or "no events"

    def free_hours(self, person_id: int, day: Day) -> str:
        """List the hours at which a person has no event on a day.

        Args:
            person_id: Number of the person.
            day: Day of the week.
        """
        find("person", self.people, id=person_id)
        return f"free at {', '.join(map(str, self._free(person_id, day))) or 'no hour'}"

    def add_event(self, person_id: int, title: str, day: Day, hour: int) -> str:
        """Add an event to the calendar of a person.

        Args:
            person_id: Number of the person.
            title: What it is.
            day: Day of the week.
            hour: Hour of the day.
        """
        find("person", self.people, id=person_id)
        self._check_free(person_id, day, hour)
        number = max([99, *(event.id for event in self.events)]) + 1
        self.events.append(Event(number, person_id, title, day, hour))
        return f"event {number} added"

    def move_event(self, event_id: int, day: Day, hour: int) -> str:
        """Move an event to another time.

        Args:
            event_id: Number of the event.
            day: Day of the week.
            hour: Hour of the day.
        """
        event = find("event", self.events, id=event_id)
        self._check_free(event.person, day, hour)
        event.day, event.hour = day, hour
        return f"event {event_id} moved"

    def delete_event(self, event_id: int) -> str:
        """Delete an event.

        Args:
            event_id: Number of the event.
        """
        self.events.remove(find("event", self.events, id=event_id))
        return f"event {event_id} deleted"

    def state(self) -> Any:
        """The events without their numbers: those of new ones depend on what was done before."""
        return sorted(astuple(event)[1:] for event in self.events)

    def values(self, argument: str) -> Sequence[Any]:
        """What a random call may give for an argument."""
        found: dict[str, Sequence[Any]] = {
            "day": DAYS,
            "hour": HOURS,
            "title": TITLES,
            "name": [person.name for person in self.people],
            "person_id": [person.id for person in self.people],
            "event_id": sorted(event.id for event in self.events),
        }
        return found[argument] or [0]

    def draw(self, rng: np.random.Generator, length: int) -> Task:
        """Draws a task that needs so many calls; one about a first free hour gets more events on its days."""
        somebody, other = some(rng, self.people, 2)
        person, name = somebody.id, somebody.name
        event = one(rng, [each for each in self.events if each.person == person])
        title, day = event.title, event.day
        new_day = one(rng, [each for each in DAYS if each != day])
        taken = [each.title for each in self.events]
        new = one(rng, [each for each in TITLES if each not in taken])
        finding = call("find_person", name=name)
        listing, delete = call("list_events", person_id=person, day=day), call("delete_event", event_id=event.id)
        if length == 2:
            hour = one(rng, self._free(person, new_day))
            add = call("add_event", person_id=person, title=new, day=new_day, hour=hour)
            return Task(f"Add {new} for {name} on {new_day} at {hour}.", (finding, add))
        if length == 3 and rng.integers(2) == 0:
            return Task(f"Delete the {title} of {name} on {day}.", (finding, listing, delete))
        look, add = self._first(rng, person, new, new_day)
        if length == 3:
            return Task(f"Add {new} for {name} at the first free hour on {new_day}.", (finding, look, add))
        if length == 4:
            move = call("move_event", event_id=event.id, day=new_day, hour=add.arguments["hour"])
            text = f"Move the {title} of {name} from {day} to the first free hour on {new_day}."
            return Task(text, (finding, listing, look, move))
        if length == 5:
            text = f"Delete the {title} of {name} on {day} and add {new} at the first free hour on {new_day}."
            return Task(text, (finding, listing, delete, look, add))
        text = f"On {new_day}, add {new} for {name} at the first free hour, and for {other.name} likewise."
        also = call("find_person", name=other.name)
        return Task(text, (finding, look, add, also, *self._first(rng, other.id, new, new_day)))

    def _first(self, rng: np.random.Generator, person: int, title: str, day: str) -> tuple[Call, Call]:
        """The calls that add an event at the first free hour, which any hour of the day may be."""
        self._fill_day(rng, person, day, title)
        look = call("free_hours", person_id=person, day=day)
        return look, call("add_event", person_id=person, title=title, day=day, hour=self._free(person, day)[0])

    def _fill_day(self, rng: np.random.Generator, person: int, day: str, title: str) -> None:
        """Adds events up to a random free hour. Else 9 o'clock is nearly always free, and guessing beats looking."""
        free = self._free(person, day)
        hours = free[: int(rng.integers(len(free)))]
        used = {person.id for person in self.people} | {event.id for event in self.events}
        spare = [each for each in numbers(rng, 90) if each not in used]
        titles = some(rng, [each for each in TITLES if each != title], len(hours))
        for number, other, hour in zip(spare, titles, hours, strict=False):
            self.events.append(Event(number, person, other, day, hour))

    def _free(self, person: int, day: str) -> list[int]:
        taken = [event.hour for event in self._on(person, day)]
        return [hour for hour in HOURS if hour not in taken]

    def _on(self, person: int, day: str) -> list[Event]:
        return [event for event in self.events if event.person == person and event.day == day]

    def _check_free(self, person: int, day: str, hour: int) -> None:
        if hour not in self._free(person, day):
            raise ToolError("the person is not free then")

    def _fill(self, rng: np.random.Generator) -> None:
        free = numbers(rng, 30)
        self.people, self.events = [Person(free.pop(), name) for name in some(rng, NAMES, 4)], []
        titles = some(rng, TITLES, 5)
        slots = [(day, hour) for day in DAYS for hour in HOURS]
        for person in self.people:
            for title, (day, hour) in zip(some(rng, titles, 4), some(rng, slots, 4), strict=True):
                self.events.append(Event(free.pop(), person.id, title, day, hour))
