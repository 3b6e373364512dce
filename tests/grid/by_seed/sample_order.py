"""Which samples global batch k holds: docs/data.md, written a second time."""
M = (1 << 64) - 1


def mix(x):
    x = (x + 0x9E3779B97F4A7C15) & M
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & M
    x = (x ^ x >> 27) * 0x94D049BB133111EB & M
    return x ^ x >> 31


def sample_at(position, count, seed, epoch):
    half = max(2, ((count - 1).bit_length() + 1) // 2)
    while True:
        left, right, key = position >> half, position & (1 << half) - 1, mix(mix(seed) ^ epoch)
        for _ in range(8):
            key = mix(key)
            left, right = right, left ^ mix(key ^ right) & (1 << half) - 1
        position = left << half | right
        if position < count:
            return position


class Order:
    """The samples of global batch k."""

    def __init__(self, count, batch, section):
        self.count, self.batch, self.section = count, batch, section
        self.usable = count // batch * batch if section.get("drop_last", True) else count

    def rows(self, k):
        return [self.sample(k * self.batch + i) for i in range(self.batch)]

    def sample(self, at):
        epoch, position = divmod(at, self.usable)
        if not self.section.get("shuffle", True):
            return position
        return sample_at(position, self.count, self.section.get("seed", 0), epoch)
