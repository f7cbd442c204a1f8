"""The grocery department of the synthetic shop."""

from webshop_server.catalog.synthetic.words import (
    FOOD_WEIGHTS,
    PACKS,
    Axis,
    Kind,
    grouped,
    listed,
    measures,
    read_traits,
)

DEPARTMENT = "grocery"

TRAITS = read_traits("""
gluten free
    Certified gluten free and packed on a line of its own.
    Naturally gluten free, and tested to be sure.
dairy free
    Dairy free, and nobody will notice.
    The recipe is dairy free and so is the kitchen.
nut free
    Made in a nut free plant, so it can go to school.
    Nut free, from the field to the bag.
soy free
    Soy free: the binder is sunflower.
    No lecithin, no oil, all soy free.
sugar free
    Sugar free and sweetened with nothing at all.
    Sugar free; what you taste is the fruit.
low sodium
    Low sodium: less than 100 mg in a serving.
    Herbs do the work of salt in this low sodium recipe.
low carb
    Low carb with three grams in a serving.
    Fits a low carb day without counting.
high protein
    High protein: twelve grams in every serving.
    Peas and pumpkin seeds make it high protein.
non gmo
    Every ingredient is non GMO and traced to the field.
    Non GMO verified.
keto friendly
    Keto friendly, with the numbers on the front.
    Rich and keto friendly.
plant based
    All plant based, from the first ingredient to the last.
    A plant based recipe that meat eaters finish first.
fair trade
    Fair trade, bought straight from a cooperative.
    Growers set the price: fair trade since our first harvest.
kosher certified
    Kosher certified by an independent board.
    Kosher certified, for every day and for holidays.
usda organic
    USDA organic, with the field number on the bag.
    Grown and packed as USDA organic.
caffeine free
    Caffeine free, so there is a cup for after dinner.
    Naturally caffeine free.
small batch
    Small batch, with the date of the day written by hand.
    Cooked small batch in open kettles.
freeze dried
    Freeze dried within hours, so the crunch and the color stay.
    Freeze dried at peak and light as air.
cold pressed
    Cold pressed on the day of the harvest.
    Cold pressed below 80 degrees, and never refined.
slow roasted
    Slow roasted in a drum over wood.
    Slow roasted until it smells of caramel.
ready to eat
    Ready to eat, with nothing to cook or to mix.
    Open the bag: it is ready to eat.
individually wrapped
    Individually wrapped, for desk drawers and lunch boxes.
    Each one is individually wrapped in paper.
[with] no artificial *colors
    No artificial colors: beet and turmeric do it.
    Made with no artificial colors whatsoever.
[with] natural *flavors
    Natural flavors from peel, leaf and root.
    Only natural flavors, listed one by one.
[with] resealable *bag
    The resealable bag has a zip that works twice as well as it looks.
    Stays fresh for weeks in its resealable bag.
[with] dietary *fiber
    A serving has a quarter of the dietary fiber you need in a day.
    Full of dietary fiber from chicory and oats.
[with] sea *salt
    Finished with flakes of sea salt.
    Sea salt from a shallow bay, raked by hand.
[with] raw *honey
    Sweetened with raw honey from one valley.
    Raw honey, stirred in cold.
[for] *gift *giving
    Boxed for gift giving, with a card to write on.
    A tin made for gift giving and for keeping buttons afterwards.
""")

_FOOD = "gluten free; non gmo / usda organic; plant based / kosher certified; no artificial colors / natural flavors; "

KINDS = (
    Kind(
        "ground coffees", "coffee", "Grocery & Gourmet Food › Beverages › Coffee, Tea & Cocoa › Coffee › Ground Coffee",
        listed("Ground *Coffee; Dark Roast *Coffee; *Espresso *Coffee; Decaf *Coffee"), (8, 46),
        listed("espresso; French press; cold brew; camping; the office machine"),
        grouped("fair trade; usda organic / non gmo; small batch; slow roasted; resealable bag; caffeine free; "
                "gift giving; natural flavors"),
        (Axis("flavor", listed("original; hazelnut; dark chocolate; vanilla; cinnamon; caramel")), FOOD_WEIGHTS),
        measures("Roast: light, medium, dark; Altitude: 1200 m, 1500 m, 1900 m"),
        listed("Roasted on Tuesday and on its way on Wednesday.|Sweet at the front, with a long and clean end.|Grind "
               "is medium, which suits most machines.", "|"),
    ),
    Kind(
        "herbal teas", "tea", "Grocery & Gourmet Food › Beverages › Coffee, Tea & Cocoa › Tea › Herbal",
        listed("Herbal *Tea; Loose Leaf *Tea; *Tea *Sachets; Iced *Tea *Bags"), (5, 32),
        listed("evenings; sore throats; iced pitchers; the office; guests"),
        grouped("caffeine free; usda organic / fair trade; sugar free; no artificial colors / natural flavors; "
                "individually wrapped; kosher certified; gift giving; small batch; resealable bag"),
        (Axis("flavor", listed("chamomile; peppermint; ginger lemon; rooibos; hibiscus; fennel; lemon balm")), PACKS),
        measures("Cups: 16, 20, 40, 80; Steep: 3 minutes, 5 minutes, 8 minutes"),
        listed("Whole flowers and leaves, so you see what you drink.|It gets rounder, never bitter, if you forget it.|"
               "Bags are folded, not glued.", "|"),
    ),
    Kind(
        "protein bars", "bar", "Grocery & Gourmet Food › Snacks & Sweets › Granola & Nutrition Bars › Protein Bars",
        listed("*Protein *Bars; Nut *Butter *Bars; Crispy *Protein *Bars"), (9, 44),
        listed("after training; hikes; the drive home; breakfast; the 4 o'clock gap"),
        grouped(_FOOD + "high protein; sugar free / raw honey; keto friendly / low carb; dairy free / soy free; "
                "individually wrapped; dietary fiber; sea salt"),
        (Axis("flavor", listed("peanut butter; dark chocolate; lemon; coconut; salted caramel; berry; mocha")),
         Axis("size", listed("6 bars; 12 bars; 24 bars"), True, 0.8)),
        measures("Protein: 10 g, 12 g, 15 g, 20 g; Calories: 160, 190, 220"),
        listed("Chewy, not chalky.|It holds together in a warm pocket.|Ingredients fit on one line.", "|"),
    ),
    Kind(
        "granolas", "granola", "Grocery & Gourmet Food › Breakfast Foods › Cereals › Granola",
        listed("*Granola; *Granola *Clusters; Toasted *Oat *Granola; Grain Free *Granola"), (6, 30),
        listed("yogurt; breakfast; trail mixes; baking; late snacks"),
        grouped(_FOOD + "raw honey / sugar free; small batch / slow roasted; resealable bag; dietary fiber; "
                "dairy free; sea salt"),
        (Axis("flavor", listed("maple pecan; cranberry; vanilla almond; cocoa; apple cinnamon; coconut")),
         FOOD_WEIGHTS),
        measures("Sugar: 3 g, 5 g, 8 g; Serving: 40 g, 50 g, 60 g"),
        listed("Clusters that survive the milk.|Baked in sheets and broken by hand.|Oats come from farms an hour "
               "away.", "|"),
    ),
    Kind(
        "olive oils", "oil", "Grocery & Gourmet Food › Pantry Staples › Cooking Oils › Olive",
        listed("Extra Virgin *Olive *Oil; *Olive *Oil; Unfiltered *Olive *Oil"), (9, 64),
        listed("salads; frying; bread; gifts; finishing soups"),
        grouped("cold pressed; usda organic / non gmo; small batch; kosher certified; keto friendly; gift giving; "
                "natural flavors; fair trade"),
        (Axis("flavor", listed("plain; lemon; garlic; basil; chili; rosemary")),
         Axis("size", listed("8.5 fl oz; 17 fl oz; 25 fl oz; 34 fl oz; 101 fl oz"), True, 0.6)),
        measures("Acidity: 0.2%, 0.3%, 0.5%; Harvest: early, late"),
        listed("Green, a little bitter, with pepper at the end.|From trees that are older than the mill.|Dark glass "
               "keeps the light away.", "|"),
    ),
    Kind(
        "hot sauces", "sauce", "Grocery & Gourmet Food › Pantry Staples › Sauces, Gravies & Marinades › Hot Sauce",
        listed("*Hot *Sauce; Chili *Sauce; Fermented *Hot *Sauce; *Pepper *Sauce"), (5, 28),
        listed("tacos; eggs; wings; marinades; brave friends"),
        grouped(_FOOD + "low sodium / sea salt; sugar free / raw honey; small batch; keto friendly; gift giving"),
        (Axis("flavor", listed("habanero; jalapeno; ghost pepper; smoky chipotle; mango; garlic")), PACKS),
        measures("Heat: mild, medium, hot, very hot; Bottle: 5 fl oz, 8 fl oz, 10 fl oz"),
        listed("Flavor first, then the fire.|Peppers rest in oak for three months.|The cap lets out drops, not "
               "floods.", "|"),
    ),
    Kind(
        "dark chocolates", "chocolate", "Grocery & Gourmet Food › Snacks & Sweets › Candy & Chocolate › Bars",
        listed("Dark *Chocolate *Bar; Dark *Chocolate *Bites; Baking *Chocolate"), (4, 36),
        listed("after dinner; baking; gifts; hot cocoa; hikes"),
        grouped(_FOOD + "fair trade; sugar free; dairy free / soy free; sea salt; individually wrapped; "
                "small batch / slow roasted; gift giving; keto friendly"),
        (Axis("flavor", listed("plain; orange peel; mint; almond; raspberry; chili; coffee")), PACKS),
        measures("Cocoa: 60%, 70%, 85%, 92%; Bar: 45 g, 80 g, 100 g"),
        listed("It snaps, then melts slowly.|Beans are roasted whole and ground for three days.|The wrapper closes "
               "again, in theory.", "|"),
    ),
    Kind(
        "dried fruits", "fruit", "Grocery & Gourmet Food › Produce › Dried Fruits & Vegetables",
        listed("Dried *Mango; Dried *Apple *Rings; Dried *Apricots; *Fruit *Chips; Dried *Strawberries"), (6, 38),
        listed("lunch boxes; trail mixes; oatmeal; baking; road trips"),
        grouped(_FOOD + "freeze dried; sugar free; resealable bag / individually wrapped; ready to eat; dietary fiber; "
                "nut free; fair trade"),
        (FOOD_WEIGHTS, PACKS), measures("Cut: slices, dices, whole, halves; Dried for: 12 hours, 18 hours"),
        listed("Fruit and warm air, nothing else.|Soft in the middle and a little crisp at the edge.|Picked ripe, "
               "which is harder than it sounds.", "|"),
    ),
    Kind(
        "pastas", "pasta", "Grocery & Gourmet Food › Pantry Staples › Pasta & Noodles",
        listed("*Penne *Pasta; *Spaghetti *Pasta; Red *Lentil *Pasta; *Chickpea *Fusilli"), (4, 30),
        listed("weeknights; salads; children; athletes; big pots of soup"),
        grouped(_FOOD + "high protein; low carb; low sodium; small batch; dietary fiber; "
                "dairy free; gift giving"),
        (FOOD_WEIGHTS, PACKS), measures("Cooks in: 6 minutes, 8 minutes, 11 minutes; Die: bronze, steel"),
        listed("Rough on the outside, so the sauce stays.|Dried slowly over two days.|It forgives a minute too long in "
               "the pot.", "|"),
    ),
    Kind(
        "nut butters", "jar", "Grocery & Gourmet Food › Pantry Staples › Nut & Seed Butters",
        listed("*Almond *Butter; *Peanut *Butter; *Cashew *Butter; *Sunflower *Seed *Butter"), (6, 34),
        listed("toast; smoothies; baking; celery; a spoon"),
        grouped(_FOOD + "sugar free / raw honey; sea salt / low sodium; slow roasted / cold pressed; high protein; "
                "keto friendly; soy free; small batch"),
        (Axis("texture", listed("creamy; crunchy; extra crunchy")), FOOD_WEIGHTS),
        measures("Jar: glass, recycled plastic; Nuts: 98%, 100%"),
        listed("Stir once, then keep it cold, and it stays stirred.|Ground between stones in two passes.|The lid is "
               "wide enough for a real spoon.", "|"),
    ),
)  # fmt: skip
