"""How soon a car knows the state of the traffic light in front of it. (Cilia et al., 2, Fig. 1)"""
