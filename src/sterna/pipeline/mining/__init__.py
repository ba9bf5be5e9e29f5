"""Mobility mining: visits, movement graphs and predictors from where clients were."""
