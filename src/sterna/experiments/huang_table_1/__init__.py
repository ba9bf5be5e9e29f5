"""Table 1 of Huang and Garcia-Molina 2001: what each filter keeps, in all small runs."""
