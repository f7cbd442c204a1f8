"""Pictures of the shops: what can be told apart on them, and what they need."""

import importlib.util
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from ragen_envs import AgentTurns
from ragen_envs.pictures.svg import MissingRendererError, draw_svg
from ragen_envs.pictures.text import draw_text
from ragen_envs.webshop import ToyShop, WebShop
from ragen_envs.webshop.client import ShopServerError
from ragen_envs.webshop.env import PICTURE_SIDE
from ragen_envs.webshop.local_store import local_store
from tests.support.ragen_envs.shop_http import connected, httpd, without_api
from webshop_server.server.pictures import svg

Picture = NDArray[np.uint8]
COLOURS = {
    **{"red": (210, 59, 59), "blue": (53, 118, 212), "green": (63, 154, 86)},
    **{"coral": (242, 120, 92), "navy": (34, 53, 111), "mint": (159, 220, 188)},
}


def shop(catalog: str = "toy", **options: Any) -> WebShop:
    env = WebShop(catalog=catalog, render_mode="rgb_array", **options)
    env.reset(options={"goal": 0})
    return env


def seen(env: WebShop) -> Picture:
    picture = env.render()
    assert isinstance(picture, np.ndarray) and picture.dtype == np.uint8
    assert picture.shape == (PICTURE_SIDE, PICTURE_SIDE, 3)
    return picture


def after(env: WebShop, *actions: str) -> Picture:
    for action in actions:
        assert env.step(action)[-1]["action_is_valid"], action
    return seen(env)


def share(picture: Picture, colour: str) -> float:
    """The share of pixels that have exactly this colour."""
    return float((picture == COLOURS[colour]).all(axis=-1).mean())


def opened(colour: str, kind: str) -> Picture:
    """The page of a product of the toy catalogue."""
    env = ToyShop(split="all", render_mode="rgb_array")
    env.reset(options={"goal": 0})
    env.step(f"search:{colour} {kind}")
    hit = next(hit for hit in env.hits if {colour, kind} <= set(hit.title.lower().split()))
    return after(env, f"click:{hit.asin}")


def test_a_product_shows_its_colour_and_its_kind() -> None:
    shoe, blue, shirt = opened("red", "shoe"), opened("blue", "shoe"), opened("red", "clothing")
    assert share(shoe, "red") > 0.05 and share(shoe, "blue") == 0
    assert share(blue, "blue") == pytest.approx(share(shoe, "red"), abs=0.002)  # the same shape
    is_shoe, is_shirt = ((one == COLOURS["red"]).all(axis=-1) for one in (shoe, shirt))
    assert (is_shoe & is_shirt).sum() / (is_shoe | is_shirt).sum() < 0.6


@pytest.mark.parametrize("mode", ["short", "text"])
def test_hits_stand_in_the_order_of_the_page_with_their_numbers(mode: str) -> None:
    env = shop(observation_mode=mode)
    pictures = after(env, "search[red shoe]"), after(env, "click[next >]")
    local = local_store(env.settings)
    side = PICTURE_SIDE // 4
    badges = set()
    for page, picture in enumerate(pictures):
        actions = ["search[red shoe]", *["click[next >]"] * page]
        asins = local.shop().store.shown(local.page(actions, parity=False))
        assert len(asins) == 10
        for place, asin in enumerate(asins):
            top, left = place // 4 * side, place % 4 * side
            cell = picture[top : top + side, left : left + side]
            alone = draw_svg(svg(local.shop().catalog.product(asin)), side)
            assert np.abs(cell.astype(int) - alone)[20:].mean() < 1.0, asin
            badges.add(cell[:18, :24].tobytes())
        assert (picture[3 * side :] == 255).all()
    assert len(badges) == 20


def test_the_toy_shop_shows_as_many_hits_as_its_page() -> None:
    env = ToyShop(split="all", render_mode="rgb_array")
    env.reset(options={"goal": 0})
    picture = after(env, "search:green shoe")
    cells = [picture[112 * (place // 3) :, 112 * (place % 3) :][:112, :112] for place in range(9)]
    colours = [hit.title.lower().split()[1] for hit in env.hits]
    assert colours[:4] == ["green"] * 4 and [share(cell, "green") > 0.05 for cell in cells[:4]] == [True] * 4
    assert all((cell == 255).all() for cell in cells[5:])


def test_a_chosen_colour_is_drawn() -> None:
    env = shop("synthetic")
    store = local_store(env.settings).shop()
    products = map(store.catalog.product, (store.goal(number).asin for number in range(500)))
    offered = ((one, [value for value in one.options.get("color", ()) if value in COLOURS]) for one in products)
    product, (first, second, *_) = next((one, values) for one, values in offered if len(values) >= 2)
    pictures = {}
    after(env, f"search[{product.title}]", f"click[{product.asin}]")
    for colour in (first, second):
        pictures[colour] = after(env, f"click[{colour}]")
        assert np.array_equal(after(env, "click[description]"), pictures[colour])
        env.step("click[< prev]")
    assert share(pictures[first], first) > 0.01 and share(pictures[first], second) == 0
    assert share(pictures[second], second) == pytest.approx(share(pictures[first], first), abs=0.005)
    assert np.array_equal(after(env, "click[buy now]"), pictures[second])


@pytest.mark.parametrize("action", ["", "search[zzzz qqqq]"])
def test_a_page_without_products_is_shown_as_text(action: str) -> None:
    env = shop(observation_mode="short")
    page = env.step(action)[0]
    assert np.array_equal(seen(env), draw_text(page, PICTURE_SIDE, PICTURE_SIDE))


def test_pictures_are_the_same_each_time_and_everywhere() -> None:
    env = shop()
    picture = after(env, "search[blue shoe]")
    picture[:] = 0
    again = seen(env)
    assert again.any() and np.array_equal(again, seen(env))
    with httpd() as address:
        served = WebShop(base_url=address, render_mode="rgb_array")
        served.reset(options={"goal": 0})
        assert np.array_equal(after(served, "search[blue shoe]"), again)
        served.close()


def test_what_draws_is_missed_before_anything_is_played(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    for made_by in (WebShop, ToyShop):
        with pytest.raises(MissingRendererError, match=r"resvg_py.*pip install 'ragen-trl\[vision\]'"):
            made_by(render_mode="rgb_array")
        made_by(render_mode="ansi")


def test_a_drawing_that_is_no_square_is_refused() -> None:
    with pytest.raises(ValueError, match="20 x 10 pixels and no square"):
        draw_svg('<svg xmlns="http://www.w3.org/2000/svg" width="40" height="20"/>', 20)


def test_a_server_of_pages_has_no_pictures() -> None:
    """Its pages name pictures on other servers, and nothing is fetched from there."""
    env = connected(WebShop(base_url="http://shop.test", render_mode="rgb_array"), without_api("toy"))
    page, _ = env.reset(options={"goal": 0})
    assert np.array_equal(seen(env), draw_text(page, PICTURE_SIDE, PICTURE_SIDE))
    with pytest.raises(ShopServerError, match="http://shop.test has pages only.*use observation='text'"):
        AgentTurns(env, observation="image").reset(options={"goal": 0})
