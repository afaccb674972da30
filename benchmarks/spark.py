NAME = "spark"


def measure(*a):
    pass


def show(*a):
    pass


def as_json(*a):
    return {}
