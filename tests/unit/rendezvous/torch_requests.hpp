// Torch's requests byte by byte, written down a second time so that the reader under test is not its own oracle: the
// bytes are those that torch 2.11's client sends (recorded between it and its own server).
#pragma once
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

namespace dslaunch::rendezvous::torch_bytes {

inline std::string number(uint64_t value, int num_bytes = 8) {
  std::string out;
  for (int i = 0; i < num_bytes; ++i) out += static_cast<char>(value >> (8 * i) & 0xff);
  return out;
}
inline std::string text(std::string_view value) {
  return number(value.size()) + std::string(value);
}
inline std::string texts(std::initializer_list<std::string_view> values) {
  std::string out;
  for (auto value : values) out += text(value);
  return out;
}
inline std::string type(int value) {
  return std::string(1, static_cast<char>(value));
}

inline std::string validate() {
  return std::string("\x00\xce\xf7\x85\x3c", 5);
}
inline std::string set(std::string_view key, std::string_view value) {
  return type(1) + texts({key, value});
}
inline std::string compare_set(std::string_view key, std::string_view expected, std::string_view desired) {
  return type(2) + texts({key, expected, desired});
}
inline std::string get(std::string_view key) {
  return type(3) + text(key);
}
inline std::string add(std::string_view key, int64_t amount) {
  return type(4) + text(key) + number(static_cast<uint64_t>(amount));
}
inline std::string check(std::initializer_list<std::string_view> keys) {
  return type(5) + number(keys.size()) + texts(keys);
}
inline std::string wait(std::initializer_list<std::string_view> keys) {
  return type(6) + number(keys.size()) + texts(keys);
}
inline std::string num_keys() {
  return type(7);
}
inline std::string erase(std::string_view key) {
  return type(8) + text(key);
}
inline std::string append(std::string_view key, std::string_view value) {
  return type(9) + texts({key, value});
}
inline std::string multi_get(std::initializer_list<std::string_view> keys) {
  return type(10) + number(keys.size()) + texts(keys);
}
inline std::string multi_set(std::initializer_list<std::string_view> keys_and_values) {
  return type(11) + number(keys_and_values.size() / 2) + texts(keys_and_values);
}
inline std::string cancel_wait() {
  return type(12);
}
inline std::string ping(uint32_t nonce) {
  return type(13) + number(nonce, 4);
}
inline std::string push(std::string_view queue, std::string_view value) {
  return type(14) + texts({queue, value});
}
inline std::string pop(std::string_view queue) {
  return type(15) + text(queue);
}
inline std::string queue_length(std::string_view queue) {
  return type(16) + text(queue);
}
inline std::string list_keys() {
  return type(17);
}

}  // namespace dslaunch::rendezvous::torch_bytes
