#include "file_io/storage.hpp"

#include <sys/sysmacros.h>

#include <catch2/catch.hpp>
#include <filesystem>

#include "support/temp_dir.hpp"

using namespace dslaunch;
using namespace dslaunch::file_io;
namespace fs = std::filesystem;

TEST_CASE("file systems on a network and in memory are known by their magic numbers", "[file_io][storage]") {
  CHECK(storage_of_magic(0x6969)->name == "nfs");
  CHECK(storage_of_magic(0x6969)->kind == StorageKind::kNetwork);
  // A 32-bit number that a signed field has extended.
  CHECK(storage_of_magic(static_cast<int32_t>(0xFF534D42))->name == "cifs");
  CHECK(storage_of_magic(0x01021994)->kind == StorageKind::kMemory);
  CHECK_FALSE(storage_of_magic(0xEF53));  // ext4
}

TEST_CASE("a disk and its partitions rotate when sysfs says so", "[file_io][storage]") {
  const test::TempDir sys;
  const auto add_disk = [&](const char* name, const char* rotational) {
    fs::create_directories(sys / (std::string("devices/") + name + "/queue"));
    sys.write(std::string("devices/") + name + "/queue/rotational", rotational);
    fs::create_directories(sys / (std::string("devices/") + name + "/" + name + "1"));
  };
  add_disk("sda", "1\n");
  add_disk("nvme0n1", "0\n");
  add_disk("vda", "1\n");
  fs::create_directories(sys / "dev/block");
  const auto link = [&](const char* number, const char* target) {
    fs::create_directory_symlink(fs::path("../../devices") / target, sys / (std::string("dev/block/") + number));
  };
  link("8:0", "sda");
  link("8:1", "sda/sda1");
  link("259:0", "nvme0n1");
  link("254:0", "vda");
  CHECK(rotational_disk(::makedev(8, 0), sys.path())->name == "sda");
  CHECK(rotational_disk(::makedev(8, 1), sys.path())->name == "sda");
  CHECK_FALSE(rotational_disk(::makedev(259, 0), sys.path()));
  CHECK_FALSE(rotational_disk(::makedev(254, 0), sys.path()));  // a virtual machine's, whatever is below it
  CHECK_FALSE(rotational_disk(::makedev(0, 42), sys.path()));
}

TEST_CASE("slow storage is named in one line, a local disk is not", "[file_io][storage]") {
  CHECK(describe_caution({StorageKind::kNetwork, "lustre"}, "/scratch") ==
        "'/scratch' is on a network file system (lustre): choose a local disk if there is one");
  CHECK(describe_caution({StorageKind::kRotationalDisk, "sda"}, "/data") ==
        "'/data' is on a disk that rotates (sda): a local NVMe disk is 10 to 50 times as fast");
  CHECK(describe_caution({StorageKind::kMemory, "tmpfs"}, "/dev/shm") ==
        "'/dev/shm' is in memory (tmpfs): files there save no memory");
  CHECK_FALSE(describe_caution({}, "/"));
}
