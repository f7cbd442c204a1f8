"""The garden department of the synthetic shop, which, as in the public data, is all of the home."""

from webshop_server.catalog.synthetic.words import (
    HOME_COLORS,
    PACKS,
    Axis,
    Kind,
    grouped,
    listed,
    measures,
    read_traits,
)

DEPARTMENT = "garden"

TRAITS = read_traits("""
machine washable
    The whole thing is machine washable on gentle.
    Machine washable at 40 degrees; tumble dry low.
spot clean only
    Spot clean only, with a damp cloth.
    Natural fibers: spot clean only and do not soak.
dishwasher safe
    Dishwasher safe on the top and the bottom rack.
    Tested dishwasher safe over five hundred cycles.
microwave safe
    Microwave safe and cool at the rim.
    The glaze is microwave safe and free of metal.
easy to assemble
    Easy to assemble in ten minutes with the key in the box.
    Four bolts make it easy to assemble, even alone.
fully assembled
    Comes fully assembled: unpack it and sit down.
    Shipped fully assembled in a sturdy box.
space saving
    A space saving shape that goes where others do not.
    Folds flat and is space saving when not in use.
heavy duty
    Heavy duty joints hold up to 300 pounds.
    Heavy duty stitching at every corner.
non slip
    The non slip backing grips tile and wood.
    Non slip pads keep it in its place.
fade resistant
    Fade resistant yarn stays true in a south window.
    Colors are fade resistant for at least three summers.
water resistant
    The coating is water resistant, so spills bead and wipe off.
    Water resistant enough for a bathroom without a window.
weather proof
    Weather proof, so it can stay outside all year.
    Frost and sun do no harm: it is weather proof.
double sided
    Double sided: turn it over for a second look.
    Printed and double sided, so there is no wrong way around.
eco friendly
    Eco friendly dyes and no plastic in the packing.
    Made to be eco friendly, with offcuts of larger pieces.
hand woven
    Hand woven, so no two are exactly alike.
    Hand woven on wooden looms by families we know by name.
super soft
    Super soft from the first night, and softer after ten.
    A super soft pile that you will want to lie on.
energy saving
    The energy saving bulb is included and lasts ten years.
    Energy saving at 6 watts, as bright as 60.
room darkening
    Room darkening weave that keeps out nine tenths of the light.
    Room darkening without looking heavy.
[with] solid *wood
    Solid wood, not veneer, oiled with linseed.
    Legs of solid wood that can be sanded and oiled again.
[with] stainless *steel
    Stainless steel parts that do not rust at the seaside.
    Fittings are stainless steel, inside and out.
[with] *memory *foam
    Filled with memory foam in small pieces that do not clump.
    A memory foam core that comes back slowly.
[with] *storage *space
    Hidden storage space under the lid.
    There is storage space where you would not look for it.
[with] *drainage *holes
    Drainage holes and a saucer keep roots from standing in water.
    Two drainage holes, with plugs if you do not want them.
[with] dimmable *light
    Dimmable light from candle to workbench.
    A dimmable light that remembers its last setting.
[with] *rod *pocket
    The rod pocket takes rods of up to an inch and a half.
    Hang it by the rod pocket or by clips.
[with] rust proof *grommets
    Rust proof grommets slide without a sound.
    Twelve rust proof grommets along the top.
[for the] *living *room
    Made for the living room, where it will be seen.
    A quiet piece for your living room.
[for] small *spaces
    Planned for small spaces such as halls and studios.
    Good for small spaces: it needs less than two square feet.
""")

_TEXTILE = "machine washable / spot clean only; fade resistant; super soft; eco friendly; "
_BED = Axis("size", listed("twin; full; queen; king; california king"), ordered=True, rise=0.18)

KINDS = (
    Kind(
        "throw pillow covers", "cover", "Home & Kitchen › Bedding › Decorative Pillows, Inserts & Covers",
        listed("Throw *Pillow *Cover; Linen *Cushion *Cover; Velvet *Pillow *Case"), (7, 48),
        listed("the sofa; the bed; a reading chair; the porch; a window seat"),
        grouped(_TEXTILE + "double sided; hand woven; living room; water resistant"),
        (HOME_COLORS, Axis("size", listed("12 x 20 inch; 16 x 16 inch; 18 x 18 inch; 20 x 20 inch; 24 x 24 inch"), True,
                           0.15), PACKS),
        measures("Zip: hidden, envelope; Fabric: linen, velvet, cotton canvas"),
        listed("A small change that a room notices.|The zip runs the full width, so the insert goes in without a "
               "fight.|Corners are cut to stay full.", "|"),
    ),
    Kind(
        "desk lamps", "lamp", "Home & Kitchen › Lighting & Ceiling Fans › Lamps › Desk Lamps",
        listed("*Desk *Lamp; Swing Arm *Lamp; Clamp *Desk *Lamp; *Banker *Lamp"), (19, 140),
        listed("homework; the workshop; reading; sewing; late calls"),
        grouped("dimmable light; energy saving; solid wood / stainless steel; space saving / heavy duty; small spaces; "
                "easy to assemble / fully assembled; non slip"),
        (HOME_COLORS,), measures("Reach: 14 inches, 18 inches, 24 inches; Light: 2700 K, 3000 K, 4000 K"),
        listed("Light where the hands are and not in the eyes.|The arm stays where you put it.|A switch on the cord "
               "and one on the head.", "|"),
    ),
    Kind(
        "area rugs", "rug", "Home & Kitchen › Home Décor Products › Area Rugs, Runners & Pads › Area Rugs",
        listed("*Area *Rug; Wool *Rug; *Runner *Rug; Braided *Rug"), (28, 390),
        listed("the dining table; hallways; kids' rooms; under the bed; the porch"),
        grouped(_TEXTILE + "non slip; hand woven; living room / small spaces; weather proof; double sided"),
        (HOME_COLORS, Axis("size", listed("2 x 3 ft; 2 x 8 ft; 4 x 6 ft; 5 x 8 ft; 8 x 10 ft"), True, 0.5)),
        measures("Pile: 4 mm, 9 mm, 14 mm; Backing: cotton, latex, none"),
        listed("It pulls the chairs together and keeps the room quiet.|Edges are bound and lie flat after a day.|"
               "Vacuum it without the brush.", "|"),
    ),
    Kind(
        "shower curtains", "curtain", "Home & Kitchen › Bath › Bathroom Accessories › Shower Curtains",
        listed("*Shower *Curtain; Waffle *Shower *Curtain; *Shower *Curtain *Liner"), (11, 55),
        listed("bathtubs; walk-in showers; guest bathrooms; rentals; campers"),
        grouped("water resistant; machine washable; rust proof grommets; eco friendly; heavy duty; fade resistant; "
                "double sided"),
        (HOME_COLORS, Axis("size", listed("36 x 72 inch; 60 x 72 inch; 72 x 72 inch; 72 x 84 inch"), True, 0.1)),
        measures("Hem: weighted, magnets; Hooks: included, not included"),
        listed("It hangs straight and does not come to greet you.|Dries before the next person showers.|The weave "
               "lets light through and nothing else.", "|"),
    ),
    Kind(
        "storage baskets", "basket", "Home & Kitchen › Storage & Organization › Baskets, Bins & Containers",
        listed("*Storage *Basket; *Laundry *Basket; Rope *Storage *Bin; *Toy *Basket"), (12, 75),
        listed("toys; blankets; laundry; shelves; the hall"),
        grouped("hand woven; space saving; eco friendly; heavy duty; storage space; small spaces / living room; "
                "spot clean only / water resistant"),
        (HOME_COLORS, Axis("size", listed("small; medium; large; x-large"), True, 0.3), PACKS),
        measures("Handles: rope, leather, cut out; Lid: with lid, open"),
        listed("Things disappear into it and the room is done.|It keeps its shape when it is empty.|Soft at the rim, "
               "so knees are safe.", "|"),
    ),
    Kind(
        "bar stools", "stool", "Home & Kitchen › Furniture › Game & Recreation Room Furniture › Barstools",
        listed("*Bar *Stool; *Counter *Stool; Swivel *Bar *Stool"), (45, 290),
        listed("kitchen islands; home bars; studios; breakfast; workbenches"),
        grouped("easy to assemble / fully assembled; solid wood / stainless steel; heavy duty / space saving; memory "
                "foam; non slip; weather proof; living room / small spaces"),
        (HOME_COLORS, Axis("size", listed("24 inch; 26 inch; 29 inch; 33 inch"), True, 0.1), PACKS),
        measures("Back: low, high, none; Footrest: ring, bar"),
        listed("High enough to see who comes in.|The seat is hollowed a little, which is what makes it comfortable.|"
               "Feet level themselves on old floors.", "|"),
    ),
    Kind(
        "bed sheets", "set", "Home & Kitchen › Bedding › Sheets & Pillowcases › Sheet & Pillowcase Sets",
        listed("Bed *Sheet *Set; Percale *Sheets; Linen *Sheet *Set; Flannel *Sheets"), (24, 190),
        listed("hot sleepers; guest rooms; winter; deep mattresses; college"),
        grouped(_TEXTILE + "double sided; heavy duty; hand woven"),
        (HOME_COLORS, _BED), measures("Thread count: 200, 300, 400; Pocket depth: 14 inches, 16 inches, 18 inches"),
        listed("Cool when you get in and warm when you get up.|Elastic runs all the way around.|A label says which "
               "side is the long one.", "|"),
    ),
    Kind(
        "window curtains", "curtain", "Home & Kitchen › Home Décor Products › Window Treatments › Panels",
        listed("*Window *Curtains; Linen *Curtain *Panel; *Blackout *Curtain"), (17, 120),
        listed("bedrooms; street windows; large windows; nurseries; home cinemas"),
        grouped("room darkening; machine washable / spot clean only; rod pocket / rust proof grommets; energy saving; "
                "fade resistant; living room; eco friendly"),
        (HOME_COLORS, Axis("size", listed("52 x 63 inch; 52 x 84 inch; 52 x 96 inch; 52 x 108 inch"), True, 0.12),
         PACKS),
        measures("Lining: none, cotton, foam; Hem: 2 inches, 4 inches"),
        listed("Heavy enough to fall in folds.|Hang it wet and it irons itself.|Panels are sold one by one, so count "
               "twice.", "|"),
    ),
    Kind(
        "plant pots", "pot", "Patio, Lawn & Garden › Gardening › Pots, Planters & Container Accessories",
        listed("*Plant *Pot; Ceramic *Planter; Hanging *Planter; *Herb *Pot"), (9, 95),
        listed("herbs; succulents; balconies; a lemon tree; window sills"),
        grouped("drainage holes; weather proof; eco friendly; space saving / heavy duty; non slip; small spaces / "
                "living room; stainless steel"),
        (HOME_COLORS, Axis("size", listed("4 inch; 6 inch; 8 inch; 10 inch; 14 inch"), True, 0.35), PACKS),
        measures("Wall: 5 mm, 8 mm, 12 mm; Saucer: included, not included"),
        listed("Roots like it, and so do shelves.|Fired slowly and sealed inside.|Heavy at the foot, so a tall plant "
               "does not tip.", "|"),
    ),
    Kind(
        "dinner plates", "plate", "Home & Kitchen › Kitchen & Dining › Dining & Entertaining › Plates",
        listed("*Dinner *Plates; Stoneware *Plates; *Salad *Plate *Set; Enamel *Plates"), (14, 120),
        listed("every day; guests; camping; pasta; the holidays"),
        grouped("dishwasher safe; microwave safe; heavy duty; eco friendly; non slip; weather proof; space saving"),
        (HOME_COLORS, Axis("size", listed("set of 2; set of 4; set of 6; set of 8"), True, 0.6)),
        measures("Diameter: 8 inches, 9 inches, 10.5 inches, 11 inches; Rim: flat, raised, coupe"),
        listed("Good food looks better on it, and toast does too.|They stack without scratching.|The glaze pools at "
               "the edge, so each one differs a little.", "|"),
    ),
)  # fmt: skip
