// What kind of storage a directory is on, as far as the kernel says.
#pragma once
#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

namespace dslaunch::file_io {

enum class StorageKind {
  kDisk,  // or not known
  kRotationalDisk,
  kNetwork,
  kMemory,
};

struct Storage {
  StorageKind kind = StorageKind::kDisk;
  std::string name;  // of the network's or memory's file system, or of the rotational disk: "nfs", "tmpfs", "sda"
};

// The name of a file system that lies on a network or in memory, by the magic number of statfs(2).
std::optional<Storage> storage_of_magic(int64_t magic);
// The disk, if sysfs (mounted at `sys`) says that it rotates. Empty for virtual disks, which
// always say so, and for file systems without one block device.
std::optional<Storage> rotational_disk(dev_t device, const std::string& sys = "/sys");

// Of an existing directory. Any thread.
Storage find_storage(const std::string& directory);
// One line for storage that is slow, or is not storage: empty for others.
std::optional<std::string> describe_caution(const Storage& storage, const std::string& directory);

}  // namespace dslaunch::file_io
