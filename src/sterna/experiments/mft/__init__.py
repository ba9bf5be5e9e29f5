"""What it costs that brokers and subscribers move. (Amozarrain and Larrea 2019, 3 to 6)"""
