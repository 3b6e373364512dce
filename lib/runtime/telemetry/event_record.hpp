// The bytes of a TensorBoard event file: records with a length and two masked CRC-32C checksums around hand-written
// protocol buffers (Event, Summary). Pure.
//
//   record: length (8 bytes), masked CRC of the length (4), data, masked CRC of the data (4); little-endian
//   Event: 1 wall_time double, 2 step int64, 3 file_version string, 5 summary
//   Summary: 1 value, repeated; Value: 1 tag string, 2 simple_value float, 8 tensor, 9 metadata
//   TensorProto: 1 dtype (7: string), 2 tensor_shape, 8 string_val; SummaryMetadata: 1 plugin_data, whose 1 is its name
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace dslaunch::runtime {

// CRC-32C (Castagnoli, reflected), as in iSCSI.
uint32_t crc32c(std::string_view bytes);

std::string event_record(std::string_view event);  // the record around an Event
std::string encode_version_event(double wall_time);
std::string encode_scalar_event(double wall_time, int64_t step, std::string_view tag, float value);
// For the page of texts, which reads Markdown.
std::string encode_text_event(double wall_time, int64_t step, std::string_view tag, std::string_view markdown);

}  // namespace dslaunch::runtime
