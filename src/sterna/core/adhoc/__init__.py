"""Networks of devices alone, where brokers are found or elected. (Huang and Garcia-Molina, 3.1)"""
