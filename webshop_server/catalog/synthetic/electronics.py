"""The electronics department of the synthetic shop."""

from webshop_server.catalog.synthetic.words import (
    CABLE_LENGTHS,
    DEVICE_COLORS,
    PACKS,
    Axis,
    Kind,
    grouped,
    listed,
    measures,
    read_traits,
)

DEPARTMENT = "electronics"

TRAITS = read_traits("""
fast charging
    Fast charging: half full in under thirty minutes.
    Supports fast charging with every current phone.
wireless charging
    Wireless charging through cases of up to 4 mm.
    Put it down and wireless charging starts by itself.
noise cancelling
    Noise cancelling microphones keep your voice apart from the street.
    Active and noise cancelling, with a switch for when you want to hear the world.
water resistant
    Water resistant to IPX5, so rain and sweat are fine.
    The shell is water resistant and seals around every port.
dust proof
    Dust proof to IP6X for workshops and beaches.
    Closed all around and dust proof.
shock proof
    Shock proof corners took twenty drops from six feet in our tests.
    The frame is shock proof without being bulky.
hands free
    Hands free calls with a microphone that finds your voice.
    Works hands free: just say what you want.
plug and play
    Plug and play on every system, with no driver to install.
    Set up in a minute: plug and play.
easy to install
    Easy to install with two screws or the tape in the box.
    Drawings instead of pages of text make it easy to install.
easy to carry
    Easy to carry in a coat pocket.
    Flat, light and easy to carry.
ultra slim
    Ultra slim at less than a third of an inch.
    An ultra slim body without a bulge.
heavy duty
    Heavy duty build for tool boxes and tour buses.
    Heavy duty: tested ten thousand times and still going.
non slip
    Non slip all over: it stays in the hand and on the table.
    The non slip surface stays put on glass and on wood.
energy efficient
    Energy efficient: it draws less than a watt in standby.
    Energy efficient parts keep it cool and the bill low.
high resolution
    High resolution down to the corners, so small print is sharp.
    A high resolution sensor or screen is the first thing you notice.
dual band
    Dual band radio finds the free channel by itself.
    A dual band connection that holds through two walls.
[with] long *battery *life
    Long battery life: charge it on Sunday and forget it until Friday.
    Engineered for long battery life, with a gauge that tells the truth.
[with] *stereo *sound
    True stereo sound with drivers that were measured in pairs.
    Wide stereo sound that fills a kitchen.
[with] deep *bass
    Deep bass that you feel before you hear it.
    A second membrane adds deep bass without a rattle.
[with] *night *vision
    Infrared night vision reaches thirty feet in full darkness.
    Night vision switches on by itself at dusk.
[with] *motion *detection
    Motion detection tells people from cats and branches.
    Alerts you by motion detection, in zones that you draw.
[with] *voice *control
    Voice control understands whispers.
    Built in voice control that works without the internet.
[with] *carrying *case
    A hard carrying case is in the box.
    Comes with a carrying case that holds the cable too.
[with] *aluminum *alloy
    Milled from aluminum alloy and brushed by hand.
    Aluminum alloy carries the heat away from what is inside.
[with] tempered *glass
    Tempered glass of hardness 9H takes keys and sand.
    Covered with tempered glass to the very edge.
[with] quiet *keys
    Quiet keys, so nobody in the meeting hears you type.
    Dampened and quiet keys with a soft landing.
[with] adjustable *height
    Adjustable height in seven clicks.
    Adjustable height that holds where you leave it.
[with] *usb *port
    A USB port on the side powers a lamp or a stick.
    One extra USB port, where you can reach it.
""")

_AUDIO = "water resistant / dust proof; hands free; long battery life; fast charging / wireless charging; "

KINDS = (
    Kind(
        "wireless earbuds", "pair", "Electronics › Headphones › Earbud Headphones",
        listed("*Wireless *Earbuds; *Bluetooth *Earbuds; Open *Ear *Headphones"), (18, 190),
        listed("running; phone calls; trains; sleeping; gaming"),
        grouped(_AUDIO + "noise cancelling; stereo sound / deep bass; easy to carry; voice control; carrying case"),
        (DEVICE_COLORS,), measures("Driver: 6 mm, 10 mm, 12 mm; Bluetooth: 5.0, 5.2, 5.3; Play time: 5 h, 7 h, 9 h"),
        listed("They connect before they are in your ears.|Four sizes of tips are in the box; take a minute to find "
               "yours.|Taps are hard to make by accident.", "|"),
    ),
    Kind(
        "bluetooth speakers", "speaker", "Electronics › Portable Audio & Video › Portable Bluetooth Speakers",
        listed("*Bluetooth *Speaker; Portable *Speaker; *Shower *Speaker"), (16, 220),
        listed("the kitchen; camping; the pool; parties; bike rides"),
        grouped(_AUDIO + "stereo sound / deep bass; shock proof; easy to carry; voice control; usb port"),
        (DEVICE_COLORS,), measures("Power: 5 W, 12 W, 20 W, 30 W; Range: 33 ft, 66 ft, 100 ft"),
        listed("Small enough for a backpack and loud enough for a garden.|Two of them pair left and right.|The buttons "
               "can be told apart in the dark.", "|"),
    ),
    Kind(
        "phone cases", "case", "Electronics › Cell Phones & Accessories › Cases, Holsters & Sleeves",
        listed("*Phone *Case; Clear *Phone *Case; Wallet *Phone *Case; *Phone *Bumper"), (7, 55),
        listed("clumsy hands; work sites; a slim pocket; kids; travel"),
        grouped("shock proof; wireless charging; ultra slim / heavy duty; non slip; dust proof / water resistant; "
                "tempered glass; easy to install"),
        (DEVICE_COLORS, Axis("size", listed("5.4 inch; 5.8 inch; 6.1 inch; 6.5 inch; 6.7 inch"), True)),
        measures("Raised edge: 0.8 mm, 1.2 mm, 1.5 mm; Finish: matte, gloss, textured"),
        listed("It comes off when you want it to, and never before.|The camera sits below the rim.|Clear cases are "
               "treated against yellowing.", "|"),
    ),
    Kind(
        "power banks", "power bank", "Electronics › Cell Phones & Accessories › Portable Power Banks",
        listed("*Power *Bank; Portable *Charger; Solar *Power *Bank"), (15, 120),
        listed("festivals; flights; camping; long shifts; power cuts"),
        grouped("fast charging; wireless charging; easy to carry / heavy duty; ultra slim; water resistant / "
                "dust proof / shock proof; usb port; aluminum alloy; carrying case"),
        (DEVICE_COLORS, Axis("capacity", listed("5000mah; 10000mah; 20000mah; 26800mah"), True, 0.4)),
        measures("Outputs: 1, 2, 3; Weight: 120 g, 210 g, 350 g"),
        listed("A full charge for you and one for a friend.|The display counts in percent, not in dots.|Allowed in the "
               "cabin of any airline.", "|"),
    ),
    Kind(
        "usb c cables", "cable", "Electronics › Computers & Accessories › Cables › USB Cables",
        listed("*USB C *Cable; Braided *USB C *Charger *Cable; *USB C to *HDMI *Cable"), (6, 34),
        listed("the car; the nightstand; laptops; tablets; game controllers"),
        grouped("fast charging; heavy duty; plug and play; high resolution; easy to carry; aluminum alloy"),
        (CABLE_LENGTHS, DEVICE_COLORS, PACKS), measures("Rating: 60 W, 100 W, 240 W; Data: 480 Mbps, 10 Gbps"),
        listed("The cable that stays when others have frayed.|Plugs click and do not wobble.|A strap keeps it rolled "
               "up.", "|"),
    ),
    Kind(
        "computer monitors", "monitor", "Electronics › Computers & Accessories › Monitors",
        listed("*Computer *Monitor; Curved *Monitor; Portable *Monitor; *Gaming *Monitor"), (95, 480),
        listed("the home office; games; photo editing; spreadsheets; a second screen"),
        grouped("high resolution; energy efficient; ultra slim; adjustable height; plug and play; usb port; stereo "
                "sound; easy to install"),
        (Axis("size", listed("15.6 inch; 21.5 inch; 24 inch; 27 inch; 32 inch"), True, 0.25),),
        measures("Panel: IPS, VA, OLED; Refresh rate: 60 Hz, 75 Hz, 144 Hz; Ports: 1, 2, 3"),
        listed("A screen that is the same from every seat.|Colors were measured before it was packed, and the sheet is "
               "in the box.|It does not flicker at any brightness.", "|"),
    ),
    Kind(
        "computer keyboards", "keyboard", "Electronics › Computers & Accessories › Keyboards",
        listed("Mechanical *Keyboard; *Wireless *Keyboard; Compact *Keyboard"), (22, 170),
        listed("writing; games; small desks; tablets; shared offices"),
        grouped("quiet keys; plug and play; long battery life; ultra slim / heavy duty; non slip; aluminum alloy; "
                "usb port; water resistant"),
        (DEVICE_COLORS, Axis("layout", listed("us english; uk english; german; french; spanish"))),
        measures("Keys: 61, 75, 84, 104; Travel: 1.8 mm, 3.2 mm, 4 mm"),
        listed("Letters are molded through and never rub off.|It remembers three machines and switches with one key.|"
               "Every key can be pulled and washed.", "|"),
    ),
    Kind(
        "security cameras", "camera", "Electronics › Camera & Photo › Video Surveillance › Dome Cameras",
        listed("*Security *Camera; Outdoor *Camera; Pan and Tilt *Camera; *Doorbell *Camera"), (24, 190),
        listed("front doors; garages; baby rooms; holiday homes; shops"),
        grouped("night vision; motion detection; high resolution; dual band; water resistant / dust proof; easy to "
                "install / plug and play; long battery life; voice control"),
        (Axis("color", listed("white; black; gray")), PACKS),
        measures("View: 110 degrees, 130 degrees, 160 degrees; Storage: card, cloud, card or cloud"),
        listed("It shows what happened and skips the hours when nothing did.|Pictures stay at home unless you send "
               "them.|A cover closes over the lens when you are in.", "|"),
    ),
    Kind(
        "wireless mice", "mouse", "Electronics › Computers & Accessories › Mice",
        listed("*Wireless *Mouse; Vertical *Mouse; Travel *Mouse; *Gaming *Mouse"), (11, 95),
        listed("laptops; small hands; left-handers; games; meetings"),
        grouped("plug and play; long battery life; ultra slim; quiet keys; non slip; easy to carry; fast charging; "
                "aluminum alloy"),
        (DEVICE_COLORS, Axis("hand", listed("right hand; left hand; either hand"))),
        measures("Resolution: 1600 dpi, 4000 dpi, 12000 dpi; Buttons: 3, 5, 7"),
        listed("Shaped for a hand at rest.|The wheel clicks when you look for a line and spins when you look for the "
               "end.|Works on glass.", "|"),
    ),
    Kind(
        "tablet stands", "stand", "Electronics › Computers & Accessories › Tablet Accessories › Stands",
        listed("*Tablet *Stand; Folding *Tablet *Holder; *Desk *Stand"), (9, 70),
        listed("recipes; video calls; drawing; bedside tables; music sheets"),
        grouped("adjustable height; non slip; aluminum alloy; easy to carry; heavy duty; wireless charging; "
                "easy to install"),
        (DEVICE_COLORS, Axis("size", listed("up to 8 inch; up to 11 inch; up to 13 inch"), True, 0.2)),
        measures("Angle: 0 to 90 degrees, 15 to 75 degrees; Weight: 180 g, 320 g, 540 g"),
        listed("It stands still while you tap.|Hinges are stiff enough for writing on the glass.|There is room behind "
               "it for the cable.", "|"),
    ),
)  # fmt: skip
