"""A calendar: people, and what they do at which hour of which day."""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Literal

import numpy as np

from ragen_envs.calling.tool import Call, ToolError
from ragen_envs.tools.domain import Domain, Task, Words, call, numbers, one, some
from ragen_envs.tools.orders import NAMES

DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday")
HOURS = tuple(range(9, 17))
TITLES = ("review", "lunch", "budget", "training", "interview", "planning", "demo", "survey")

Day = Literal["Monday", "Tuesday", "Wednesday", "Thursday", "Friday"]


class Agenda(Domain):
    """People and events."""

    script: ClassVar[str] = """
        CREATE TABLE people (id INTEGER, name TEXT);
        CREATE TABLE events (id INTEGER, person INTEGER, title TEXT, day TEXT, hour INTEGER);
    """
    purpose: ClassVar[str] = "Manage the calendar of a team. Hours are from 9 to 16."
    # Without the numbers of events: those of new ones depend on what was done before.
    contents: ClassVar[tuple[str, ...]] = ("SELECT person, title, day, hour FROM events ORDER BY 1, 2, 3, 4",)
    lookups: ClassVar[tuple[str, ...]] = ("find_person", "list_events", "free_hours")
    other_words: ClassVar[Words] = {
        "find_person": ("colleague", "Look up a colleague.", {"name": ("called", "What the colleague is called.")}),
        "list_events": (
            "schedule_of",
            "Show the appointments of a colleague.",
            {"person_id": ("colleague_no", "Of the colleague."), "day": ("weekday", "Which weekday.")},
        ),
        "free_hours": (
            "gaps_of",
            "Show when a colleague has time.",
            {"person_id": ("colleague_no", "Of the colleague."), "day": ("weekday", "Which weekday.")},
        ),
        "add_event": (
            "appoint",
            "Make an appointment.",
            {
                "person_id": ("colleague_no", "Of the colleague."),
                "title": ("about", "What it is about."),
                "day": ("weekday", "Which weekday."),
                "hour": ("at", "At which hour."),
            },
        ),
        "move_event": (
            "postpone",
            "Give an appointment another time.",
            {
                "event_id": ("appointment_no", "Of the appointment."),
                "day": ("weekday", "Which weekday."),
                "hour": ("at", "At which hour."),
            },
        ),
        "delete_event": ("call_off", "Call it off.", {"event_id": ("appointment_no", "Of the appointment.")}),
    }

    @property
    def functions(self) -> tuple[Callable[..., Any], ...]:
        """The tools in their first wording."""
        looking = (self.find_person, self.list_events, self.free_hours)
        return (*looking, self.add_event, self.move_event, self.delete_event)

    def find_person(self, name: str) -> str:
        """Find a person by name.

        Args:
            name: The person's name.
        """
        (number,) = self._only("SELECT id FROM people WHERE name = ?", name, what="person")
        return f"person {number}: {name}"

    def list_events(self, person_id: int, day: Day) -> str:
        """List the events of a person on a day.

        Args:
            person_id: Number of the person.
            day: Day of the week.
        """
        self._check_person(person_id)
        query = "SELECT id, title, hour FROM events WHERE person = ? AND day = ? ORDER BY hour"
        found = self.database.rows(query, person_id, day)
        lines = [f"event {number}: {title} at {hour}" for number, title, hour in found]
        return "\n".join(lines) or "no events"

    def free_hours(self, person_id: int, day: Day) -> str:
        """List the hours at which a person has no event on a day.

        Args:
            person_id: Number of the person.
            day: Day of the week.
        """
        self._check_person(person_id)
        return f"free at {', '.join(map(str, self._free(person_id, day))) or 'no hour'}"

    def add_event(self, person_id: int, title: str, day: Day, hour: int) -> str:
        """Add an event to the calendar of a person.

        Args:
            person_id: Number of the person.
            title: What it is.
            day: Day of the week.
            hour: Hour of the day.
        """
        self._check_person(person_id)
        self._check_free(person_id, day, hour)
        number = self.database.next_number("events")
        self.database.insert("events", [(number, person_id, title, day, hour)])
        return f"event {number} added"

    def move_event(self, event_id: int, day: Day, hour: int) -> str:
        """Move an event to another time.

        Args:
            event_id: Number of the event.
            day: Day of the week.
            hour: Hour of the day.
        """
        (person,) = self._only("SELECT person FROM events WHERE id = ?", event_id, what="event")
        self._check_free(person, day, hour)
        self.database.change("UPDATE events SET day = ?, hour = ? WHERE id = ?", day, hour, event_id)
        return f"event {event_id} moved"

    def delete_event(self, event_id: int) -> str:
        """Delete an event.

        Args:
            event_id: Number of the event.
        """
        self._only("SELECT id FROM events WHERE id = ?", event_id, what="event")
        self.database.change("DELETE FROM events WHERE id = ?", event_id)
        return f"event {event_id} deleted"

    def values(self, argument: str) -> Sequence[Any]:
        """What a random call may give for an argument."""
        fixed: dict[str, Sequence[Any]] = {"day": DAYS, "hour": HOURS, "title": TITLES}
        if argument in fixed:
            return fixed[argument]
        queries = {
            "name": "SELECT name FROM people",
            "person_id": "SELECT id FROM people",
            "event_id": "SELECT id FROM events ORDER BY id",
        }
        return [value for (value,) in self.database.rows(queries[argument])] or [0]

    def draw(self, rng: np.random.Generator, length: int) -> Task:
        """Draws a task that needs so many calls; one about a first free hour gets more events on its days."""
        (person, name), (second, other) = some(rng, self.database.rows("SELECT id, name FROM people"), 2)
        event, title, day = one(rng, self.database.rows("SELECT id, title, day FROM events WHERE person = ?", person))
        new_day = one(rng, [each for each in DAYS if each != day])
        taken = [each for (each,) in self.database.rows("SELECT title FROM events")]
        new = one(rng, [each for each in TITLES if each not in taken])
        find = call("find_person", name=name)
        listing, delete = call("list_events", person_id=person, day=day), call("delete_event", event_id=event)
        if length == 2:
            hour = one(rng, self._free(person, new_day))
            add = call("add_event", person_id=person, title=new, day=new_day, hour=hour)
            return Task(f"Add {new} for {name} on {new_day} at {hour}.", (find, add))
        if length == 3 and rng.integers(2) == 0:
            return Task(f"Delete the {title} of {name} on {day}.", (find, listing, delete))
        look, add = self._first(rng, person, new, new_day)
        if length == 3:
            return Task(f"Add {new} for {name} at the first free hour on {new_day}.", (find, look, add))
        if length == 4:
            move = call("move_event", event_id=event, day=new_day, hour=add.arguments["hour"])
            text = f"Move the {title} of {name} from {day} to the first free hour on {new_day}."
            return Task(text, (find, listing, look, move))
        if length == 5:
            text = f"Delete the {title} of {name} on {day} and add {new} at the first free hour on {new_day}."
            return Task(text, (find, listing, delete, look, add))
        text = f"On {new_day}, add {new} for {name} at the first free hour, and for {other} likewise."
        finding = call("find_person", name=other)
        return Task(text, (find, look, add, finding, *self._first(rng, second, new, new_day)))

    def _first(self, rng: np.random.Generator, person: int, title: str, day: str) -> tuple[Call, Call]:
        """The calls that add an event at the first free hour, which any hour of the day may be."""
        self._fill_day(rng, person, day, title)
        look = call("free_hours", person_id=person, day=day)
        return look, call("add_event", person_id=person, title=title, day=day, hour=self._free(person, day)[0])

    def _fill_day(self, rng: np.random.Generator, person: int, day: str, title: str) -> None:
        """Adds events up to a random free hour. Else 9 o'clock is nearly always free, and guessing beats looking."""
        free = self._free(person, day)
        hours = free[: int(rng.integers(len(free)))]
        used = {each for (each,) in self.database.rows("SELECT id FROM people UNION SELECT id FROM events")}
        spare = [each for each in numbers(rng, 90) if each not in used]
        titles = some(rng, [each for each in TITLES if each != title], len(hours))
        for number, other, hour in zip(spare, titles, hours, strict=False):
            self.database.insert("events", [(number, person, other, day, hour)])

    def _free(self, person: int, day: str) -> list[int]:
        query = "SELECT hour FROM events WHERE person = ? AND day = ?"
        taken = {hour for (hour,) in self.database.rows(query, person, day)}
        return [hour for hour in HOURS if hour not in taken]

    def _check_person(self, person: int) -> None:
        self._only("SELECT id FROM people WHERE id = ?", person, what="person")

    def _check_free(self, person: int, day: str, hour: int) -> None:
        if hour not in self._free(person, day):
            raise ToolError("the person is not free then")

    def _fill(self, rng: np.random.Generator) -> None:
        free = numbers(rng, 30)
        people = [(free.pop(), name) for name in some(rng, NAMES, 4)]
        self.database.insert("people", people)
        titles = some(rng, TITLES, 5)
        slots = [(day, hour) for day in DAYS for hour in HOURS]
        for person, _ in people:
            for title, (day, hour) in zip(some(rng, titles, 4), some(rng, slots, 4), strict=True):
                self.database.insert("events", [(free.pop(), person, title, day, hour)])
