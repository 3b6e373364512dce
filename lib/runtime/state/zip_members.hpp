// The members of a zip archive in memory, as numpy.savez and torch.save write them: stored ones are seen in place,
// deflated ones are unpacked. Pure; any thread.
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
  uint64_t size = 0;               // unpacked
  std::span<const uint8_t> bytes;  // as they stand in the archive
  uint64_t entry_at = 0;           // where the directory's entry of it starts in the archive
};

// In the order of the archive's directory. Throws UserError(65); `subject` starts every message.
std::vector<ZipMember> read_zip_members(std::span<const uint8_t> archive, const std::string& subject);

// Whether the bytes of a stored member are those that were written: its CRC is computed, front to back.
bool has_stored_crc(const ZipMember& member);

// The bytes of a deflated member, checked against its CRC. Throws UserError(65).
std::vector<uint8_t> inflate_member(const ZipMember& member, const std::string& subject);

}  // namespace dslaunch::runtime
