"""Images and their classes: CIFAR's binary files, a directory of images for each class, images in the rows of a data set."""
import array
import io
import os

from failure import Failure, first_lines
from python_packages import import_package
from samples import source_files
from samples.rows import type_of
from samples.writers import Array

DEFAULT_SIZE = (224, 224)
CIFAR_SIDE = 32


class Pixels:
    """Bytes of an image, channel by channel, as values (byte / 255 - mean) / std, or as they are for uint8."""

    def __init__(self, options, size):
        self.dtype = options.dtype or "float32"
        if self.dtype not in ("float32", "uint8"):
            raise Failure(64, f"--dtype {self.dtype}: images are float32 or uint8 (0 to 255)")
        self.channels = 1 if options.grayscale else 3
        self.size = size
        self.tables = None
        if self.dtype == "float32":
            means, stds = (per_channel(name, getattr(options, name), self.channels) for name in ("mean", "std"))
            if 0.0 in stds:
                raise Failure(64, "--std must not be 0")
            self.tables = [[(byte / 255 - mean) / std for byte in range(256)] for mean, std in zip(means, stds)]
        elif options.mean or options.std:
            raise Failure(64, "--mean and --std go with --dtype float32, the default")
        self.arrays = [Array("pixel_values", self.dtype, (self.channels, *size)), Array("labels", "int64")]

    def of(self, planes):
        """`planes`: the bytes of each channel."""
        if self.tables is None:
            return array.array("B", b"".join(planes))
        values = array.array("f")
        for table, plane in zip(self.tables, planes):
            values.extend(map(table.__getitem__, plane))
        return values


def per_channel(name, text, channels):
    try:
        values = [float(each) for each in (text or "0.5").split(",")]
    except ValueError:
        raise Failure(64, f"--{name} wants a number for each channel (0.485,0.456,0.406), not '{text}'")
    if len(values) not in (1, channels):
        raise Failure(64, f"--{name} has {len(values)} numbers, and the images {channels} channels")
    return values * channels if len(values) == 1 else values


def parse_size(text):
    """(height, width) of N or HxW."""
    parts = (text or "").lower().split("x")
    if text is None:
        return None
    if len(parts) > 2 or not all(part.isdigit() and int(part) > 0 for part in parts):
        raise Failure(64, f"--size wants N or HEIGHTxWIDTH, not '{text}'")
    return int(parts[0]), int(parts[-1])


class Cifar:
    """Records of one byte (CIFAR-10) or two (CIFAR-100: coarse and fine class) and 3,072 of the image."""

    def __init__(self, sources, options):
        if options.size and parse_size(options.size) != (CIFAR_SIDE, CIFAR_SIDE):
            raise Failure(64, f"--size {options.size}: CIFAR's images are of 32 x 32 and stay so")
        if options.grayscale:
            raise Failure(64, "--grayscale goes with directories of images; CIFAR's are in colour")
        self.sources, self.pixels = sources, Pixels(options, (CIFAR_SIDE, CIFAR_SIDE))
        self.arrays = self.pixels.arrays
        self.num_labels = {source.path: num_label_bytes(source) for source in sources}
        if len(set(self.num_labels.values())) > 1:
            raise Failure(65, "files of CIFAR-10 and of CIFAR-100 do not go together: "
                              + ", ".join(f"'{source.path}'" for source in sources))
        self.is_fine = self.num_labels[sources[0].path] == 2
        if options.coarse and not self.is_fine:
            raise Failure(64, f"--coarse goes with CIFAR-100; '{sources[0].path}' is of CIFAR-10")
        self.is_coarse = options.coarse
        self.num_classes = 10 if not self.is_fine else 20 if self.is_coarse else 100
        self.names = self.names_beside(os.path.dirname(sources[0].path))

    def names_beside(self, folder):
        file = "batches.meta.txt" if not self.is_fine else "coarse_label_names.txt" if self.is_coarse else "fine_label_names.txt"
        try:
            with open(os.path.join(folder, file), encoding="utf-8") as lines:
                names = [line.strip() for line in lines if line.strip()]
        except (OSError, UnicodeDecodeError):
            return None
        return names if len(names) == self.num_classes else None

    def samples(self, meter, progress):
        for source in self.sources:
            labels = self.num_labels[source.path]
            record, at = labels + 3 * CIFAR_SIDE**2, 0 if not self.is_fine or self.is_coarse else 1
            number = 0
            with source_files.open_bytes(source.path, meter) as file:
                while data := file.read(record):
                    number += 1
                    if len(data) < record or data[at] >= self.num_classes:
                        raise Failure(65, f"'{source.path}' record {number}: "
                                          + (f"class {data[at]} of {self.num_classes}" if len(data) == record else "cut short")
                                          + "; this is not a binary file of CIFAR")
                    image = memoryview(data)[labels:]
                    planes = [image[begin:begin + CIFAR_SIDE**2] for begin in range(0, len(image), CIFAR_SIDE**2)]
                    progress.add(0, 1)
                    yield 1, [self.pixels.of(planes), [data[at]]]


def num_label_bytes(source):
    """By the size; a file whose size fits both by its name."""
    fits = [labels for labels in (1, 2) if source.size % (labels + 3072) == 0]
    return fits[0] if len(fits) == 1 or os.path.basename(source.path) not in ("train.bin", "test.bin") else 2


class ImageDirectory:
    """DIR/CLASS/**/IMAGE; classes in the order of their names."""

    def __init__(self, source, options, given_names=None):
        self.path, self.reader = source.path, ImageReader(options)
        self.arrays = self.reader.pixels.arrays
        classes = sorted(entry.name for entry in os.scandir(source.path) if entry.is_dir() and not entry.name.startswith("."))
        self.names = given_names or classes
        for name in classes:
            if name not in self.names:
                raise Failure(65, f"'{os.path.join(source.path, name)}' is not one of the classes ({', '.join(self.names[:8])})")
        self.directories = [(os.path.join(source.path, name), self.names.index(name)) for name in classes]
        self.num_other = 0

    def each(self):
        self.num_other = 0
        for directory, label in self.directories:
            for here, below, names in os.walk(directory):
                below.sort()
                for name in sorted(names):
                    if name.lower().endswith(source_files.IMAGE_ENDINGS):
                        yield os.path.join(here, name), label
                    else:
                        self.num_other += 1

    def samples(self, meter, progress):
        for path, label in self.each():
            meter.add_bytes(os.path.getsize(path))
            planes = self.reader.read(path, f"'{path}'")
            progress.add(0, 1)
            yield 1, [self.reader.pixels.of(planes), [label]]


class ImageRows:
    """Images in the rows of a data set of datasets: {"bytes": ..., "path": ...}."""

    def __init__(self, plan, options, labels):
        self.plan, self.labels, self.reader = plan, labels, ImageReader(options)
        self.arrays = self.reader.pixels.arrays

    def samples(self, rows, progress, stats):
        for row in rows:
            value, label = self.plan.fetch(row, "image"), self.plan.fetch(row, "label")
            if value is None or label is None:
                stats.empty += 1
                continue
            data = value if isinstance(value, bytes) else value.get("bytes") if isinstance(value, dict) else None
            path = value.get("path") if isinstance(value, dict) else value if isinstance(value, str) else None
            if data is None and path is None:
                raise Failure(65, f"{row.place()}: column '{self.plan.columns['image']}' is {type_of(value)}, expected an image")
            if data is None:
                path = os.path.join(os.path.dirname(row.path), path)
            planes = self.reader.read(io.BytesIO(data) if data is not None else path, row.place())
            progress.add(1, 1)
            yield 1, [self.reader.pixels.of(planes), [self.labels.value(label, row)]]


class ImageReader:
    """Through Pillow: the shorter side becomes as long as wanted, then the middle is cut out."""

    def __init__(self, options):
        self.pil = import_package("PIL", "an image", "pillow", parts=("Image", "ImageOps"))
        self.pixels = Pixels(options, parse_size(options.size) or DEFAULT_SIZE)

    def read(self, file, place):
        """The bytes of each channel."""
        try:
            with self.pil.Image.open(file) as image:
                image = self.pil.ImageOps.exif_transpose(image).convert("L" if self.pixels.channels == 1 else "RGB")
                image = self.fitted(image)
                return [channel.tobytes() for channel in image.split()]
        except FileNotFoundError:
            raise Failure(66, f"{place}: cannot read the image '{file}': no such file")
        except (OSError, ValueError, SyntaxError, self.pil.Image.DecompressionBombError) as error:
            raise Failure(65, f"{place}: not an image that can be read: {first_lines(error)}")

    def fitted(self, image):
        height, width = self.pixels.size
        if image.size == (width, height):
            return image
        scale = max(width / image.width, height / image.height)
        scaled = (max(width, round(image.width * scale)), max(height, round(image.height * scale)))
        image = image.resize(scaled, self.pil.Image.Resampling.BILINEAR)
        left, top = (scaled[0] - width) // 2, (scaled[1] - height) // 2
        return image.crop((left, top, left + width, top + height))
