"""The fashion department of the synthetic shop."""

from webshop_server.catalog.synthetic.words import (
    CLOTHING_SIZES,
    SHOE_SIZES,
    WEAR_COLORS,
    Axis,
    Kind,
    grouped,
    listed,
    measures,
    read_traits,
)

DEPARTMENT = "fashion"

TRAITS = read_traits("""
machine washable
    Easy to live with: machine washable at 30 degrees, and it keeps its shape.
    Machine washable with like colors; hang to dry.
hand wash only
    The fabric is delicate, so hand wash only and dry flat.
    Hand wash only, in cold water and with mild soap.
moisture wicking
    The moisture wicking knit pulls sweat away before it gets heavy.
    A moisture wicking inner layer keeps you dry when the pace goes up.
quick drying
    Quick drying fibers: ready to wear again after an hour on the line.
    Caught in the rain? The quick drying fabric forgives you.
water resistant
    A water resistant finish sheds drizzle and splashes.
    Treated to be water resistant for a whole season.
fully waterproof
    Taped seams make it fully waterproof, even in a downpour.
    Fully waterproof to a water column of 10,000 mm.
light weight
    Light weight enough to forget that you have it on.
    A light weight build that you stop noticing after a minute.
breathable
    Breathable panels let warm air out where you need it most.
    Woven open and breathable for warm days.
wrinkle free
    Wrinkle free straight from the suitcase, no iron needed.
    The wrinkle free weave looks fresh at the end of the day.
slim fit
    Slim fit through the body; take one size up for a looser look.
    Cut in a slim fit that follows the figure.
relaxed fit
    Relaxed fit with room to move and to layer.
    Cut in a relaxed fit that is easy all day long.
long sleeve
    The long sleeve style works on its own or under a jacket.
    Long sleeve cut with cuffs that stay where you push them.
short sleeve
    Short sleeve cut that sits just above the elbow.
    A short sleeve style for warm days and for layering.
arch support
    Molded arch support takes the load off tired feet.
    Built in arch support, so no extra insoles are needed.
wide toe box
    The wide toe box lets toes spread the way they want to.
    Shaped with a wide toe box for natural movement.
high waist
    The high waist stays put when you bend or sit down.
    High waist cut that smooths and holds.
tagless
    Tagless neck and seams, because labels scratch.
    Printed and tagless, so nothing rubs the skin.
fleece lined
    Fleece lined on the inside for cold mornings.
    Soft and fleece lined from top to bottom.
[with] *memory *foam
    A memory foam layer takes the shape of your body within a few wears.
    Padded with memory foam where it counts.
[with] *rubber *sole
    The rubber sole grips wet pavement and loose gravel.
    Stitched to a rubber sole that outlasts the upper.
[with] *side *pockets
    Deep side pockets hold a phone and keys without bulging.
    Two side pockets, hidden in the seam.
[with] *drawstring *closure
    The drawstring closure adjusts with one hand.
    A flat drawstring closure instead of a stiff button.
[with] reflective *details
    Reflective details on the back keep you seen after dark.
    Small reflective details catch the headlights behind you.
[with] *organic *cotton
    Spun from organic cotton that was grown without pesticides.
    Soft on the skin thanks to organic cotton.
[with] *merino *wool
    Knitted with merino wool that warms, cools and does not smell.
    Fine merino wool, never itchy.
[with] *laptop *sleeve
    A padded laptop sleeve fits machines of up to 15 inches.
    The laptop sleeve hangs clear of the floor, so a drop does no harm.
[with] polarized *lenses
    Polarized lenses take the glare off water and wet roads.
    Made with polarized lenses that pass every light test.
scratch resistant
    The scratch resistant coating takes keys and sand.
    Scratch resistant on both sides.
[with] spring *hinges
    Spring hinges give way when somebody sits on them.
    Fits wide and narrow heads thanks to spring hinges.
[with] uv *protection
    Full UV protection up to 400 nm.
    With UV protection 50+, tested by an independent lab.
""")

_CLOTHES = "machine washable / hand wash only; slim fit / relaxed fit; tagless; "

KINDS = (
    Kind(
        "running shoes", "shoe", "Clothing, Shoes & Jewelry › Shoes › Athletic › Running",
        listed("*Running *Shoes; Road *Running *Sneakers; *Training *Shoes"), (38, 145),
        listed("daily runs; long walks; the gym; half marathons; busy shifts"),
        grouped("light weight; breathable / water resistant; arch support / wide toe box; quick drying; memory foam;"
                "rubber sole; reflective details"),
        (WEAR_COLORS, SHOE_SIZES), measures("Heel drop: 4 mm, 6 mm, 8 mm, 10 mm; Weight: 215 g, 240 g, 268 g"),
        listed("A daily trainer that feels the same on the first mile and the last.|Foam underfoot is soft at the heel "
               "and firm at the toe, so the foot rolls forward by itself.|The upper is knitted in one piece.", "|"),
    ),
    Kind(
        "hiking boots", "boot", "Clothing, Shoes & Jewelry › Shoes › Outdoor › Hiking Boots",
        listed("*Hiking *Boots; Mid *Trekking *Boots; *Trail *Boots"), (59, 210),
        listed("day hikes; rocky trails; muddy paths; winter walks; backpacking"),
        grouped("fully waterproof / water resistant / breathable; light weight / fleece lined; arch support / "
                "wide toe box; memory foam; rubber sole; quick drying"),
        (WEAR_COLORS, SHOE_SIZES), measures("Lug depth: 4 mm, 5 mm; Shaft height: 5 inches, 6 inches"),
        listed("Built for people who count summits, not steps.|The ankle is padded and firm, and the tongue is sewn "
               "in to keep stones out.|Laces run through metal hooks that do not bend.", "|"),
    ),
    Kind(
        "t-shirts", "shirt", "Clothing, Shoes & Jewelry › Clothing › Shirts › T-Shirts",
        listed("Crew Neck *T-Shirt; V-Neck *Tee; Pocket *T-Shirt"), (9, 45),
        listed("every day; the office; travel; working out; sleeping in"),
        grouped(_CLOTHES + "short sleeve / long sleeve; breathable; moisture wicking; wrinkle free; organic cotton / "
                "merino wool; quick drying"),
        (WEAR_COLORS, CLOTHING_SIZES), measures("Fabric weight: 160 gsm, 180 gsm, 220 gsm; Collar: ribbed, taped"),
        listed("The shirt you reach for without thinking.|It is cut a little longer, so it stays tucked in.|Double "
               "stitching on the hem and the shoulders.", "|"),
    ),
    Kind(
        "hooded sweatshirts", "hoodie", "Clothing, Shoes & Jewelry › Clothing › Fashion Hoodies & Sweatshirts",
        listed("Pullover *Hoodie; Zip *Hoodie; Hooded *Sweatshirt"), (22, 85),
        listed("cool evenings; weekends; the walk to the gym; camp fires; studying"),
        grouped(_CLOTHES + "side pockets; drawstring closure; organic cotton; breathable / fleece lined; reflective "
                "details"),
        (WEAR_COLORS, CLOTHING_SIZES), measures("Fabric weight: 280 gsm, 320 gsm, 400 gsm; Hood: single, double"),
        listed("Thick where it warms and thin where it folds.|Cuffs and hem are ribbed and spring back.|It gets softer "
               "with every wash.", "|"),
    ),
    Kind(
        "jeans", "pair", "Clothing, Shoes & Jewelry › Clothing › Jeans",
        listed("Straight Leg *Jeans; Tapered *Jeans; Stretch *Denim *Jeans"), (29, 120),
        listed("the office; weekends; riding a bike; concerts; gardening"),
        grouped("slim fit / relaxed fit; high waist; machine washable; organic cotton; side pockets; fleece lined / "
                "light weight; wrinkle free"),
        (Axis("color", listed("indigo; stone wash; black; light blue; ecru; dark rinse")),
         Axis("size", listed("28w x 30l; 30w x 30l; 30w x 32l; 32w x 32l; 34w x 32l; 34w x 34l; 36w x 34l"), True)),
        measures("Denim: 10 oz, 12 oz, 14 oz; Fly: zip, buttons"),
        listed("Denim with a little stretch that recovers overnight.|Pocket bags are made of heavy twill and do not "
               "wear through.|The dye is fixed twice, so it stays off your sofa.", "|"),
    ),
    Kind(
        "casual dresses", "dress", "Clothing, Shoes & Jewelry › Women › Clothing › Dresses › Casual",
        listed("Wrap *Dress; Midi *Dress; *Shirt *Dress; *Summer *Dress"), (24, 110),
        listed("garden parties; the office; beach days; dinners; travel"),
        grouped("long sleeve / short sleeve; machine washable / hand wash only; side pockets; wrinkle free; light "
                "weight / fleece lined; high waist; organic cotton; breathable"),
        (WEAR_COLORS, CLOTHING_SIZES), measures("Length: 38 inches, 42 inches, 46 inches; Lining: full, to the waist"),
        listed("One piece and you are dressed.|The skirt is cut on the bias and moves with you.|Buttons are sewn on by "
               "hand and two spare ones are inside.", "|"),
    ),
    Kind(
        "rain jackets", "jacket", "Clothing, Shoes & Jewelry › Clothing › Jackets & Coats › Rainwear",
        listed("*Rain *Jacket; Hooded *Raincoat; Packable *Rain *Shell"), (34, 180),
        listed("commuting; hiking; festivals; sailing; walking the dog"),
        grouped("fully waterproof / water resistant; light weight / fleece lined; breathable; side pockets; drawstring "
                "closure; reflective details; relaxed fit / slim fit; machine washable"),
        (WEAR_COLORS, CLOTHING_SIZES), measures("Packed size: 4 x 7 inches, 5 x 9 inches; Zip: two-way, one-way"),
        listed("Weather turns; this one does not mind.|The hood follows your head when you look around.|A flap behind "
               "the zip keeps wind and chin apart.", "|"),
    ),
    Kind(
        "backpacks", "backpack", "Clothing, Shoes & Jewelry › Luggage & Travel Gear › Backpacks",
        listed("*Travel *Backpack; Daily *Backpack; Roll Top *Backpack; *School *Bag"), (25, 160),
        listed("school; commuting; weekend trips; carry-on travel; photography"),
        grouped("water resistant / fully waterproof; light weight; laptop sleeve; side pockets; reflective details; "
                "drawstring closure; hand wash only; memory foam"),
        (WEAR_COLORS, Axis("size", listed("15 liter; 20 liter; 26 liter; 32 liter; 40 liter"), True, 0.2)),
        measures("Straps: padded, padded with chest strap; Main zip: 8 mm coil, 10 mm coil"),
        listed("Everything in its place, and the place is easy to find.|The back panel stands by itself when you open "
               "it.|Seams that carry weight are sewn three times.", "|"),
    ),
    Kind(
        "socks", "pair", "Clothing, Shoes & Jewelry › Clothing › Socks & Hosiery",
        listed("Crew *Socks; Ankle *Socks; Knee High *Socks; *Hiking *Socks"), (8, 36),
        listed("running; the office; cold floors; hiking; long flights"),
        grouped("moisture wicking; merino wool / organic cotton; arch support; machine washable; breathable / "
                "fleece lined; quick drying; tagless"),
        (WEAR_COLORS, Axis("size", listed("shoe size 4-6; shoe size 7-9; shoe size 10-12; shoe size 13-15"), True)),
        measures("Pairs: 2, 3, 5, 6; Cushion: light, medium, full"),
        listed("The toe is linked by hand, so there is no seam to feel.|Heels are knitted double.|They stay up and do "
               "not leave a mark.", "|"),
    ),
    Kind(
        "sunglasses", "pair", "Clothing, Shoes & Jewelry › Accessories › Sunglasses & Eyewear",
        listed("Round *Sunglasses; Square *Sunglasses; Sport *Sunglasses"), (14, 130),
        listed("driving; the beach; cycling; skiing; fishing"),
        grouped("polarized lenses; uv protection; light weight; scratch resistant; spring hinges"),
        (Axis("color", listed("black; tortoise; clear; matte green; honey; navy")),
         Axis("lens color", listed("smoke; amber; green; blue mirror; rose"))),
        measures("Lens width: 48 mm, 51 mm, 54 mm, 57 mm; Hinge: spring, five barrel"),
        listed("A frame that suits more faces than most.|Screws are locked and do not work loose.|Comes with a hard "
               "case and a cloth.", "|"),
    ),
)  # fmt: skip
