// tokenize_lines TOKENIZER [add_special]
//
// A text a line on standard input, its bytes in hexadecimal digits. For each, a line: its ids, what they are as text,
// and that without special tokens, again as digits, with tabs in between. On standard error at the end the seconds that
// encoding has taken. All texts are decoded through a stream, token by token.
#include <chrono>
#include <cstdio>
#include <iostream>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "base/format.hpp"
#include "base/utf8.hpp"
#include "runtime/text/tokenizer.hpp"

using namespace dslaunch;

namespace {

std::string bytes_of(const std::string& digits) {
  std::string out;
  for (size_t i = 0; i + 1 < digits.size(); i += 2) {
    out += static_cast<char>(std::stoi(digits.substr(i, 2), nullptr, 16));
  }
  return out;
}

std::string digits_of(std::string_view bytes) {
  std::string out;
  for (const char byte : bytes) out += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  return out;
}

// Every piece of it is whole characters.
std::string streamed(const runtime::text::Tokenizer& tokenizer, const std::vector<int64_t>& ids, bool skip_special) {
  const auto decoder = tokenizer.stream_decoder(skip_special);
  std::string out;
  const auto add = [&](const std::string& text) {
    for (std::string_view rest = text; !rest.empty(); rest.remove_prefix(utf8_length(rest))) {
      DSL_CHECK(utf8_length(rest) > 0, "a piece of the stream is not whole characters");
    }
    out += text;
  };
  for (const int64_t id : ids) add(decoder->push(id));
  add(decoder->finish());
  return out;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const auto tokenizer = runtime::text::open_tokenizer(argv[1]);
    const bool adds_special = argc > 2;
    std::vector<std::string> texts;
    for (std::string line; std::getline(std::cin, line);) texts.push_back(bytes_of(line));
    std::vector<std::vector<int64_t>> ids;
    const auto begin = std::chrono::steady_clock::now();
    for (const auto& text : texts) ids.push_back(tokenizer->encode(text, adds_special));
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
    for (const auto& one : ids) {
      std::fputs(fmt::format("{}\t{}\t{}\n", fmt::join(one, " "), digits_of(streamed(*tokenizer, one, false)),
                             digits_of(streamed(*tokenizer, one, true)))
                     .c_str(),
                 stdout);
    }
    std::fputs(fmt::format("{:.4f}\n", taken.count()).c_str(), stderr);
  } catch (const Error& error) {
    std::fputs(fmt::format("{}\n", error.what()).c_str(), stderr);
    return static_cast<int>(error.code());
  }
  return 0;
}
