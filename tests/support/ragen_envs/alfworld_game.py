"""A game in the format of ALFWorld's: a kitchen in PDDL, with a grammar for its texts. Nothing of it is ALFWorld's."""

import json
from pathlib import Path

DOMAIN = """
(define (domain kitchen)
  (:requirements :adl)
  (:types agent location receptacle object)
  (:predicates
    (atlocation ?a - agent ?l - location)
    (receptacleatlocation ?r - receptacle ?l - location)
    (inreceptacle ?o - object ?r - receptacle)
    (holds ?a - agent ?o - object)
    (holdsany ?a - agent))
  (:action GotoLocation
    :parameters (?a - agent ?lstart - location ?lend - location ?r - receptacle)
    :precondition (and (atlocation ?a ?lstart) (receptacleatlocation ?r ?lend) (not (= ?lstart ?lend)))
    :effect (and (not (atlocation ?a ?lstart)) (atlocation ?a ?lend)))
  (:action PickupObject
    :parameters (?a - agent ?l - location ?o - object ?r - receptacle)
    :precondition (and (atlocation ?a ?l) (receptacleatlocation ?r ?l) (inreceptacle ?o ?r) (not (holdsany ?a)))
    :effect (and (not (inreceptacle ?o ?r)) (holds ?a ?o) (holdsany ?a)))
  (:action PutObject
    :parameters (?a - agent ?l - location ?o - object ?r - receptacle)
    :precondition (and (atlocation ?a ?l) (receptacleatlocation ?r ?l) (holds ?a ?o))
    :effect (and (inreceptacle ?o ?r) (not (holds ?a ?o)) (not (holdsany ?a)))))
"""
PROBLEM = """
(define (problem mug)
  (:domain kitchen)
  (:objects
    agent1 - agent
    loc_0 loc_1 loc_2 loc_3 - location
    Mug_bar__plus_01_dot_2 Mug_bar__minus_00_dot_9 - object
    Shelf_bar__plus_1 Shelf_bar__plus_2 Fridge_bar__minus_1 - receptacle)
  (:init
    (atlocation agent1 loc_0)
    (receptacleatlocation Shelf_bar__plus_1 loc_1)
    (receptacleatlocation Shelf_bar__plus_2 loc_2)
    (receptacleatlocation Fridge_bar__minus_1 loc_3)
    (inreceptacle Mug_bar__plus_01_dot_2 Shelf_bar__plus_1)
    (inreceptacle Mug_bar__minus_00_dot_9 Shelf_bar__plus_2))
  (:goal (inreceptacle Mug_bar__plus_01_dot_2 Fridge_bar__minus_1)))
"""
_SEEN = "[{o.name | inreceptacle(o:object, r:receptacle)}]"
RULES = {
    "intro": [{"rhs": "-= Welcome =-\\n\\nYou are in a kitchen.\\n\\nYour task is to: put mug 1 in fridge."}],
    "go.feedback": [{"rhs": f"You arrive at {{r.name}}. On it you see {_SEEN}."}],
    "take.feedback": [{"rhs": "You pick up the {o.name} from the {r.name}."}],
    "put.feedback": [{"rhs": "You move the {o.name} to the {r.name}."}],
    "list_empty": [{"rhs": "nothing"}],
    "list_separator": [{"rhs": ", "}],
    "list_last_separator": [{"rhs": " and "}],
}
GRAMMAR = f'''grammar :: """
{json.dumps(RULES)}
""";

action GotoLocation {{
    template :: "go to [{{r.name | receptacleatlocation(r:receptacle, lend:location)}}]";
    feedback :: "#go.feedback#";
}}

action PickupObject {{
    template :: "take {{o}} from {{r}}";
    feedback :: "#take.feedback#";
}}

action PutObject {{
    template :: "move {{o}} to {{r}}";
    feedback :: "#put.feedback#";
}}
'''


def write_game(folder: Path, task_type: str | None = None, solvable: bool = True) -> Path:
    """Write ``game.tw-pddl`` into a new folder and, with a type of task, the ``traj_data.json`` that names it."""
    folder.mkdir(parents=True)
    content = {"pddl_domain": DOMAIN, "pddl_problem": PROBLEM, "grammar": GRAMMAR, "solvable": solvable}
    game = folder / "game.tw-pddl"
    game.write_text(json.dumps(content), encoding="utf-8")
    if task_type is not None:
        (folder / "traj_data.json").write_text(json.dumps({"task_type": task_type}), encoding="utf-8")
    return game
