// The table of contents of a zip archive (APPNOTE 4.3.12 to 4.3.16), from bytes that somebody else has read: the
// archive's end says where it stands. No number in it is believed: what does not fit throws WireError, whose text goes
// on behind the archive's name ("is a truncated or damaged zip archive"). Pure.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace dslaunch {

// So much of an archive's end, or all of it, tells where the directory is.
inline constexpr size_t kZipEndBytes = 66'000;

// Whether an archive whose last bytes are these has its end.
bool has_zip_end(std::string_view tail);

struct ZipDirectoryPlace {
  uint64_t offset = 0, size = 0;  // inside of the archive
  uint64_t num_entries = 0;       // for which `size` has room
};
// `tail`: kZipEndBytes or more of the end, all where the archive has less.
ZipDirectoryPlace find_zip_directory(std::string_view tail, uint64_t archive_bytes);

// One member, as the directory describes it.
struct ZipEntry {
  std::string name;
  uint16_t flags = 0, method = 0;
  uint32_t crc = 0;
  uint64_t packed_bytes = 0, bytes = 0;
  uint64_t header_at = 0;  // where its own header should stand in the archive; not checked
  size_t entry_at = 0;     // where this description starts in the directory
};
std::vector<ZipEntry> read_zip_entries(std::string_view directory, uint64_t num_entries);

}  // namespace dslaunch
