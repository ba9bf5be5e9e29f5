"""From where clients were to where they will be: visits, movement graphs, predictors."""

from sterna.extras import require

require("pipeline", "mining")
