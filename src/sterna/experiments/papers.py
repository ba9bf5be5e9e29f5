"""The papers that experiments reproduce, as headings of the report."""

FIEGE = (
    "Fiege, Gärtner, Kasten and Zeidler 2003: Supporting mobility in content-based "
    "publish/subscribe middleware"
)
HUANG = "Huang and Garcia-Molina 2001: Publish/subscribe in a mobile environment"
BURCEA = (
    "Burcea, Jacobsen, de Lara, Muthusamy and Petrovic 2004: Disconnected operation in "
    "publish/subscribe middleware"
)
CILIA = (
    "Cilia, Fiege, Haul, Zeidler and Buchmann 2003: Looking into the past: enhancing mobile "
    "publish/subscribe middleware"
)
ROUTING = "Routing strategies, in the manner of Carzaniga et al. 2001 and Mühl 2002"
AMOZARRAIN = (
    "Amozarrain and Larrea 2019: Full mobility and fault tolerance in content-based "
    "publish/subscribe"
)
