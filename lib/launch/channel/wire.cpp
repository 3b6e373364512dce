#include "launch/channel/wire.hpp"

#include <algorithm>
#include <array>

#include "base/error.hpp"
#include "base/format.hpp"
#include "launch/channel/wire_fields.hpp"

namespace dslaunch::launch {
namespace {

template <class... Types>
consteval bool have_distinct_types(const std::variant<Types...>*) {
  std::array codes{Types::kType...};
  std::sort(codes.begin(), codes.end());
  return std::adjacent_find(codes.begin(), codes.end()) == codes.end();
}
static_assert(have_distinct_types(static_cast<MessageToAgent*>(nullptr)));
static_assert(have_distinct_types(static_cast<MessageToLauncher*>(nullptr)));

// Reads the fields of the message if it is of this type.
template <class Type, class Message>
bool read_if(uint8_t type, FieldReader& from, Message& message) {
  if (type != Type::kType) return false;
  from.get(message.template emplace<Type>());
  return true;
}

template <class... Types>
void read(FieldReader& from, std::variant<Types...>& message) {
  const uint8_t type = from.u8();
  if (!(read_if<Types>(type, from, message) || ...)) throw WireError(fmt::format("unknown message type {}", type));
}

[[noreturn]] void refuse(std::string_view bytes, std::string_view why) {
  std::string shown;
  for (char c : bytes.substr(0, 60)) shown += c >= 32 && c < 127 ? c : '.';
  throw Error(ExitCode::kInternal,
              fmt::format("unexpected data on the channel between launcher and agent ({}): \"{}\"", why, shown));
}

template <class Message>
std::string encode_any(const Message& message) {
  FieldWriter fields;
  fields.u32(0);  // replaced by the length below
  std::visit(
      [&]<class Type>(const Type& m) {
        fields.put(Type::kType);
        fields.put(m);
      },
      message);
  std::string frame = fields.take();
  size_t length = frame.size() - 4;
  DSL_CHECK(length <= kMaxFrameBytes, fmt::format("message too long: {} bytes", length));
  frame.replace(0, 4, ByteWriter().count(length).take());
  return frame;  // moved
}

}  // namespace

std::string encode(const MessageToAgent& message) {
  return encode_any(message);
}

std::string encode(const MessageToLauncher& message) {
  return encode_any(message);
}

template <class Received>
std::optional<Received> FrameReader<Received>::next() {
  std::string_view unread = std::string_view(buffer_).substr(begin_);
  if (unread.size() < 4) return std::nullopt;
  size_t length = ByteReader(unread).u32();
  if (length < 1 || length > kMaxFrameBytes) refuse(unread, fmt::format("frame length {} out of range", length));
  if (unread.size() < 4 + length) return std::nullopt;
  FieldReader fields(unread.substr(4, length));
  Received message;
  try {
    read(fields, message);
  } catch (const WireError& error) {
    refuse(unread, error.what());
  }
  if (!fields.at_end()) refuse(unread, "a frame is longer than its message");
  begin_ += 4 + length;
  if (begin_ == buffer_.size() || begin_ > (1U << 20)) {
    buffer_.erase(0, begin_);
    begin_ = 0;
  }
  return message;
}

template class FrameReader<MessageToAgent>;
template class FrameReader<MessageToLauncher>;

}  // namespace dslaunch::launch
