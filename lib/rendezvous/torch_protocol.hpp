// The bytes of PyTorch's c10d TCPStore protocol, as the client of torch 2.11 sends them to its libuv server
// (docs/wire.md). Pure. For a malformed request the reader throws wire::WireError, and the caller drops that
// connection.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dslaunch::rendezvous::torch_wire {

inline constexpr uint8_t kFirstByte = 0x00;  // of a connection: the type of the validation request that opens it
inline constexpr uint32_t kValidationMagic = 0x3C85F7CE;
inline constexpr size_t kMaxKeyBytes = 8192;            // the limit of torch itself
inline constexpr size_t kMaxKeys = 128u << 10;          // per request; the limit of torch itself
inline constexpr size_t kMaxValueBytes = 64u << 20;     // torch's server closes a connection beyond 8 MiB
inline constexpr size_t kMaxRequestBytes = 144u << 20;  // two values of maximum size, or many small ones

enum class Type : uint8_t {
  kValidate = 0,
  kSet = 1,
  kCompareSet = 2,
  kGet = 3,
  kAdd = 4,
  kCheck = 5,
  kWait = 6,
  kNumKeys = 7,
  kDelete = 8,
  kAppend = 9,
  kMultiGet = 10,
  kMultiSet = 11,
  kCancelWait = 12,
  kPing = 13,
  kQueuePush = 14,
  kQueuePop = 15,
  kQueueLength = 16,
  kListKeys = 17,
};

enum class CheckAnswer : uint8_t { kReady = 0, kNotReady = 1 };
enum class WaitAnswer : uint8_t { kStopWaiting = 0, kCancelled = 1 };

struct Request {
  Type type{};
  std::vector<std::string> keys;
  std::vector<std::string> values;  // kCompareSet: expected, desired; otherwise one per key, or none
  uint64_t number = 0;              // kValidate: the magic; kPing: the nonce; kAdd: the amount (two's complement)
};

// Assembles requests from bytes that arrive in pieces of any size. A partly received value takes no more memory than
// the bytes received.
class RequestReader {
 public:
  // Consumes bytes from the front of `input` up to the end of the next request; nullopt when the request is incomplete,
  // in which case all usable bytes have been consumed.
  std::optional<Request> next(std::string_view& input);
  // The memory that the partly received request uses.
  size_t held_bytes() const;

 private:
  enum class Field { kType, kCount, kKey, kValue, kNumber, kNone };

  Field field() const;
  bool take_number(std::string_view& input, size_t num_bytes, uint64_t& value);
  bool take_text(std::string_view& input, size_t most_bytes, std::vector<std::string>& to);
  bool take(Field field, std::string_view& input);
  void begin(uint8_t type);
  void count_bytes(size_t num_bytes);

  bool has_type_ = false, has_count_ = false, has_number_ = false;
  uint64_t num_keys_ = 0;
  Request request_;
  size_t request_bytes_ = 0;
  std::string piece_;                   // of an incomplete number
  std::optional<uint64_t> text_bytes_;  // of the text being received
  std::string text_;
};

std::string encode_number(int64_t value);
std::string encode_value(std::string_view value);

}  // namespace dslaunch::rendezvous::torch_wire
