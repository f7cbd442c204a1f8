"""The beauty department of the synthetic shop."""

from webshop_server.catalog.synthetic.words import BOTTLES, PACKS, Axis, Kind, grouped, listed, measures, read_traits

DEPARTMENT = "beauty"

TRAITS = read_traits("""
fragrance free
    Fragrance free, so it gets along with whatever else you use.
    Made fragrance free for noses and skin that react.
cruelty free
    Certified cruelty free: never tested on animals, nor is anything in it.
    We are cruelty free and show the papers on our site.
paraben free
    Paraben free and kept fresh by an airless cap.
    The formula is paraben free from first to last drop.
sulfate free
    Sulfate free cleansing that does not strip.
    Low foam because it is sulfate free, and cleaner than you expect.
alcohol free
    Alcohol free, so it does not sting or dry.
    The alcohol free base is kind to broken skin.
oil free
    Oil free and gone within a minute, with no shine.
    An oil free texture that sits well under makeup.
dye free
    Dye free, so towels stay white.
    What you see is the color it has by nature: dye free.
easy to clean
    Easy to clean with warm water and a drop of soap.
    Smooth inside and easy to clean.
non drip
    A non drip neck keeps the outside dry.
    Pours when you want it to: non drip.
long lasting
    Long lasting: one application in the morning is enough.
    Tested as long lasting for up to twelve hours.
easy to apply
    Easy to apply without a mirror, even in a moving train.
    Smooth and easy to apply, and nothing goes to waste.
leak proof
    The leak proof lid has been on planes and in gym bags.
    Leak proof when closed with a quarter turn.
non greasy
    Non greasy: touch paper after a minute and see.
    Rich but non greasy, so sleeves go on right after.
dermatologist tested
    Dermatologist tested on 120 volunteers of all skin types.
    Dermatologist tested, and rated mild.
water proof
    Water proof for eighty minutes in the pool.
    Stays water proof through tears and rain.
travel size
    Travel size, so it passes the security check.
    A travel size that fits every kit.
bpa free
    All plastic in it is BPA free and goes into the dishwasher.
    Molded from BPA free material that does not smell.
plant based
    Nine in ten ingredients are plant based.
    A plant based recipe without anything from the lab that is not needed.
vegan
    Vegan, down to the glue of the label.
    Vegan and certified as such.
[with] *tea *tree *oil
    A drop of tea tree oil keeps things calm.
    With tea tree oil from a single farm.
[with] *coconut *oil
    Cold pressed coconut oil softens and adds a faint scent.
    Coconut oil, melted in slowly, gives slip without weight.
[with] hyaluronic *acid
    Hyaluronic acid of two sizes holds water where skin needs it.
    Plumps with hyaluronic acid within minutes.
[with] *vitamin c
    Vitamin C in a stable form evens the tone.
    Brightens with vitamin C over four weeks.
[with] *shea *butter
    Whipped shea butter melts at skin temperature.
    Shea butter from a women's cooperative in Ghana.
[with] *aloe *vera
    Aloe vera gel instead of plain water as the base.
    Cools at once with aloe vera.
[with] *argan *oil
    Argan oil smooths without leaving a film.
    A little argan oil goes a long way.
[with] soft *bristles
    Soft bristles that do not shed, even after fifty washes.
    Dense, soft bristles pick up just enough.
[for] sensitive *skin
    Made for sensitive skin and for faces that flush easily.
    Safe for sensitive skin, also around the eyes.
[for] dry *hair
    Made for dry hair that breaks before it grows.
    A good choice for dry hair after summer and sun.
[for] curly *hair
    Weighted for curly hair, so curls clump and do not frizz.
    Developed with stylists for curly hair.
[for] damaged *hair
    A rescue for damaged hair after bleach and heat.
    Meant for damaged hair: the ends feel closed again.
""")

_SKIN = ("dye free; cruelty free / vegan; paraben free; dermatologist tested; sensitive skin; non greasy / "
         "oil free; ")  # fmt: skip
_SCENTS = Axis("scent", listed("lavender; citrus; unscented; eucalyptus; rose; vanilla; sandalwood; green tea; fig"))

KINDS = (
    Kind(
        "shampoos", "shampoo", "Beauty & Personal Care › Hair Care › Shampoo & Conditioner › Shampoos",
        listed("Daily *Shampoo; Repair *Shampoo; Volume *Shampoo; *Shampoo *Bar"), (6, 38),
        listed("daily washing; color treated hair; hard water; swimmers; weekly deep cleaning"),
        grouped("sulfate free / paraben free; cruelty free / vegan; dry hair / curly hair / damaged hair; "
                "argan oil / coconut oil / tea tree oil; plant based; dye free"),
        (_SCENTS, BOTTLES), measures("pH: 5.0, 5.5; Foam: low, medium, rich"),
        listed("Clean hair that still feels like hair.|It rinses out quickly and saves you a minute of warm water.|"
               "One pump does for short hair and two for long.", "|"),
    ),
    Kind(
        "face moisturizers", "cream", "Beauty & Personal Care › Skin Care › Face › Creams & Moisturizers",
        listed("*Face *Moisturizer; Day *Cream; Night *Cream; *Gel *Moisturizer"), (9, 68),
        listed("mornings; cold weather; after shaving; under makeup; overnight"),
        grouped(_SKIN + "hyaluronic acid / vitamin c; aloe vera / shea butter; easy to apply"),
        (BOTTLES, _SCENTS), measures("Texture: gel, light cream, balm; Jar: glass, airless pump"),
        listed("Skin drinks it and asks for nothing else.|It holds moisture through a day of heated rooms.|Give it two "
               "weeks, and look in daylight.", "|"),
    ),
    Kind(
        "lip balms", "balm", "Beauty & Personal Care › Skin Care › Lip Care › Balms & Treatments",
        listed("*Lip *Balm; Tinted *Lip *Balm; *Lip *Mask"), (3, 22),
        listed("wind and sun; winter; under lipstick; kids; long flights"),
        grouped("cruelty free / vegan; fragrance free; long lasting; easy to apply; shea butter / coconut oil / "
                "aloe vera; paraben free; travel size; non greasy"),
        (Axis("flavor", listed("mint; cherry; honey; vanilla; plain; coconut; grapefruit; cocoa")), PACKS),
        measures("Net weight: 4 g, 8 g, 10 g; Container: stick, tin, tube"),
        listed("Small enough to lose, good enough to look for.|It does not melt in a warm pocket.|Lips feel soft the "
               "next morning, not only while it is on.", "|"),
    ),
    Kind(
        "body lotions", "lotion", "Beauty & Personal Care › Skin Care › Body › Moisturizers › Lotions",
        listed("*Body *Lotion; *Body *Milk; Firming *Body *Lotion"), (7, 42),
        listed("after the shower; dry elbows; summer legs; the whole family; winter skin"),
        grouped(_SKIN + "shea butter / aloe vera / coconut oil; plant based; long lasting; vitamin c"),
        (_SCENTS, BOTTLES), measures("Pump: locking, standard; Absorbs in: 30 seconds, 60 seconds, 90 seconds"),
        listed("Sinks in while you brush your teeth.|The bottle stands on its head, so the last of it comes out.|"
               "Smells of very little, on purpose.", "|"),
    ),
    Kind(
        "sunscreens", "sunscreen", "Beauty & Personal Care › Skin Care › Sun › Sunscreens",
        listed("*Sunscreen *Lotion SPF 30; *Sunscreen *Spray SPF 50; Mineral *Sunscreen SPF 50"), (8, 40),
        listed("the beach; daily commutes; sports; children; high mountains"),
        grouped("water proof; fragrance free; oil free / non greasy; sensitive skin; dermatologist tested; "
                "alcohol free / paraben free; aloe vera / vitamin c; travel size; easy to apply"),
        (BOTTLES, PACKS), measures("Filter: mineral, organic, mixed; White cast: none, slight"),
        listed("The best sunscreen is the one you put on again.|It dries clear and does not sting in the eyes.|Safe "
               "for reefs and for white shirts.", "|"),
    ),
    Kind(
        "perfumes", "perfume", "Beauty & Personal Care › Fragrance › Women's › Eau de Parfum",
        listed("Eau de *Parfum; Eau de *Toilette *Spray; *Perfume *Oil"), (15, 140),
        listed("evenings; the office; summer; gifts; every day"),
        grouped("long lasting; cruelty free / vegan; alcohol free; travel size; paraben free; easy to apply"),
        (Axis("scent", listed("bergamot and musk; white flowers; cedar and smoke; fig leaf; amber; sea salt; iris")),
         BOTTLES),
        measures("Concentration: 8%, 15%, 20%; Cap: wood, metal"),
        listed("It opens bright, turns warm after an hour and stays close.|Mixed by one nose and aged for six weeks.|"
               "Spray it on a scarf and find it again next winter.", "|"),
    ),
    Kind(
        "makeup brush sets", "set", "Beauty & Personal Care › Tools & Accessories › Makeup Brushes › Brush Sets",
        listed("*Makeup *Brush *Set; *Powder and *Blush *Brushes; *Eye *Brush *Set"), (9, 60),
        listed("beginners; travel; stage makeup; gifts; powder"),
        grouped("soft bristles; cruelty free / vegan; easy to clean; travel size; sensitive skin"),
        (Axis("color", listed("black; rose gold; natural wood; white; lilac; champagne")),
         Axis("size", listed("5 pieces; 8 pieces; 12 pieces; 16 pieces"), True, 0.4)),
        measures("Handle: birch, bamboo, aluminum; Ferrule: aluminum, copper"),
        listed("A brush for each thing you do, and none that you never touch.|Handles are balanced, so they do not "
               "roll off the shelf.|Wash them with mild soap and let them dry lying down.", "|"),
    ),
    Kind(
        "nail polishes", "polish", "Beauty & Personal Care › Foot, Hand & Nail Care › Nail Polish",
        listed("*Nail *Polish; *Gel *Nail *Polish; Matte *Nail *Lacquer"), (4, 26),
        listed("short nails; parties; a quiet Sunday; fragile nails; toes"),
        grouped("long lasting; cruelty free / vegan; easy to apply; fragrance free; alcohol free; water proof; "
                "plant based"),
        (Axis("color", listed("cherry; nude; midnight; olive; coral; lilac; clear; brick; pearl; teal")), PACKS),
        measures("Brush: wide, standard, curved; Dries in: 40 seconds, 60 seconds"),
        listed("Two coats, no streaks.|The brush is cut to the curve of a nail.|It wears off at the edges and does not "
               "chip in flakes.", "|"),
    ),
    Kind(
        "bath salts", "salt", "Beauty & Personal Care › Bath & Bathing Accessories › Bathing › Bath Salts",
        listed("*Bath *Salts; Mineral *Bath *Soak; Epsom *Salt *Soak"), (6, 34),
        listed("sore muscles; slow evenings; tired feet; gifts; better sleep"),
        grouped("plant based; cruelty free / vegan; sensitive skin; tea tree oil / coconut oil / aloe vera; "
                "dye free; paraben free"),
        (_SCENTS, Axis("size", listed("8 ounce; 1 pound; 2 pound; 5 pound"), True, 0.5)),
        measures("Grain: fine, coarse; Source: Dead Sea, Epsom, Himalaya"),
        listed("Two handfuls, hot water and twenty minutes.|It dissolves fully and does not scratch the tub.|The scent "
               "fills the room and is gone by morning.", "|"),
    ),
    Kind(
        "refillable travel bottles", "bottle", "Beauty & Personal Care › Tools & Accessories › Refillable Containers",
        listed("*Travel *Bottles *Set; Refillable *Spray *Bottle; Silicone *Travel *Tubes"), (5, 30),
        listed("carry-on bags; the gym; camping; samples; shampoo"),
        grouped("leak proof; bpa free; travel size; easy to clean; non drip"),
        (Axis("color", listed("clear; amber; pink; blue; gray; assorted")), PACKS),
        measures("Volume: 30 ml, 60 ml, 90 ml; Opening: wide, narrow with funnel"),
        listed("Take your own shampoo to any hotel.|Squeeze it flat and it comes back.|Each one has a ring to dial "
               "what is inside.", "|"),
    ),
)  # fmt: skip
