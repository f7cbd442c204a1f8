"""What is thought before a command is true by the facts of the game, which TextWorld tells and no thought reads."""

import functools
import re
from typing import NamedTuple

import pytest

from tests.support.ragen_envs.thoughts import check_claims, check_form, thoughts

textworld = pytest.importorskip("textworld")

X, Y = r"(?P<x>[\w' -]+?)", r"(?P<y>[\w' -]+?)"
END = r"(?=,| and I am|\.| but |$)"
NEUTRAL = (
    *(r"the task is not done yet", r"there is more to do", r"I am not done with the task"),
    *(r"so I do", r"I go on with", r"so my command is", r"next comes", r"so the next step is", r"I choose"),
    *(r"let me see what happens with", r"(?:and|but)? ?let me try", r"and I (?:will )?try", r"I (?:will )?try"),
    r"\band\b",
)
LEADS = re.compile(r"so I do|go on with|so my command|Next comes|so the next step|I choose")


class World(NamedTuple):
    """What is true: things in the player's hands, within reach, in or on which other thing, and the ways out."""

    objective: str
    carried: set[str]
    near: set[str]
    held: set[tuple[str, ...]]
    ways: set[str]

    def is_held(self, match: re.Match[str]) -> bool:
        return (match["x"], match["y"]) in self.held and match["y"] in self.near


CLAIMS = {
    rf"the task says {X}(?=, and)": lambda world, m: m["x"].lower() in world.objective.lower(),
    rf"I carry the {X}, and the {Y} is here": lambda world, m: m["x"] in world.carried and m["y"] in world.near,
    rf"I have the {X} and I am near the {Y}{END}": lambda world, m: m["x"] in world.carried and m["y"] in world.near,
    rf"I am at the {Y} with the {X}{END}": lambda world, m: m["x"] in world.carried and m["y"] in world.near,
    rf"I see the {X} at the {Y}{END}": World.is_held,
    rf"the {Y} has the {X}{END}": World.is_held,
    rf"the {X} is at the {Y}{END}": World.is_held,
    rf"the {X} is in my hands": lambda world, m: m["x"] in world.carried,
    rf"the {X} is (?:here|closed|open|not closed|not open)": lambda world, m: m["x"] in world.near,
    rf"I (?:see|am near) the {X}{END}": lambda world, m: m["x"] in world.near,
    rf"I (?:carry|have) the {X}{END}": lambda world, m: m["x"] in world.carried,
    r"there is a way (?P<x>\w+)": lambda world, m: m["x"] in world.ways,
    r"the way (?P<x>\w+) is free": lambda world, m: m["x"] in world.ways,
    r"I can walk (?P<x>\w+) from here": lambda world, m: m["x"] in world.ways,
}


def facts_after(path: str, commands: tuple[str, ...]) -> set[tuple[str, ...]]:
    """Facts as TextWorld tells them after some commands: name, then the names of things."""
    game = textworld.start(path, textworld.EnvInfos(facts=True, admissible_commands=True))
    answer = game.reset()
    for command in commands:
        answer, _, _ = game.step(command)
    game.close()
    return {(fact.name, *(argument.name for argument in fact.arguments)) for fact in answer.facts}


def world_of(facts: set[tuple[str, ...]], objective: str) -> World:
    (here,) = {fact[2] for fact in facts if fact[:2] == ("at", "P")}
    carried = {fact[1] for fact in facts if fact[0] == "in" and fact[2] == "I"}
    held = {fact[1:] for fact in facts if fact[0] in ("in", "on")}
    near = {fact[1] for fact in facts if fact[0] == "at" and fact[2] == here}
    near |= {thing for thing, place in held if place in near}
    near |= {part for fact in facts if fact[0] == "link" and here in fact for part in fact[1:]}  # doors
    ways = {fact[0].removesuffix("_of") for fact in facts if fact[0].endswith("_of") and fact[2] == here}
    return World(objective, carried, near, held, ways)


@pytest.mark.parametrize(("size", "different"), [("w1-o2-q2", 5), ("w2-o3-q4", 10)])
def test_every_sentence_is_true(size: str, different: int) -> None:
    kinds = set()
    limits = {"max_turns": 8, "max_actions_per_turn": 1, "max_actions": 8}
    for thought in thoughts("ragen/TextWorld-v0", 6, 0.5, limits=limits, size=size, games=4):
        env, command = thought.env, thought.actions[0]
        check_form(thought.text, command, known=f"{env.scene.objective} {' '.join(env.scene.commands)}")
        facts = facts_after(env._path, env._commands)
        world = world_of(facts, env.scene.objective)
        text = thought.text.removesuffix(f" {command}.")
        for match in re.finditer(rf"the {X} is (not )?(open|closed)\b", text):
            is_open = (match[2] is None) == (match[3] == "open")
            assert (("open", match["x"]) in facts) == is_open, thought.text
        claims = {pattern: functools.partial(is_true, world) for pattern, is_true in CLAIMS.items()}
        kinds.update(check_claims(text, claims, NEUTRAL))
        assert bool(LEADS.search(thought.text)) == (env.plan[:1] == (command,)), thought.text
    assert len(kinds) >= different
