// The members of a zip archive in memory, as numpy.savez and torch.save write them: stored members are viewed in place,
// deflated ones are decompressed. Pure; any thread.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace dslaunch::runtime {

struct ZipMember {
  std::string name;
  bool deflated = false;
  uint32_t crc = 0;
  uint64_t size = 0;               // uncompressed
  std::span<const uint8_t> bytes;  // as stored in the archive
  uint64_t entry_at = 0;           // offset of the member's central directory entry in the archive
};

// In the order of the archive's central directory. Throws UserError(65); `subject` starts every message.
std::vector<ZipMember> read_zip_members(std::span<const uint8_t> archive, const std::string& subject);

// Whether the archive has checksums at all: torch.serialization.set_crc32_options(False) writes zeros.
bool has_checksums(const std::vector<ZipMember>& members);

// Whether the bytes of a member, unpacked where they are deflated, match its CRC. Reads all of them, at about 13 GB/s
// for stored ones, in bounded memory.
bool matches_crc(const ZipMember& member);

// The first `num_bytes` of a deflated member, or all if it has fewer; unchecked, and fewer where it is damaged.
std::vector<uint8_t> inflate_beginning(const ZipMember& member, size_t num_bytes);

// The decompressed bytes of a deflated member, checked against its CRC. Throws UserError(65).
std::vector<uint8_t> inflate_member(const ZipMember& member, const std::string& subject);

}  // namespace dslaunch::runtime
