// Escapes external text for use in messages: control characters and bytes that are not UTF-8 are written as \x1b, and
// characters that change the direction of text as \u202e, so that a damaged file or a program's output cannot send a
// terminal control sequences, end a message at a zero byte or have it shown in another order.
#pragma once
#include <cstdio>
#include <string>
#include <string_view>

namespace dslaunch {

// `kept`: control characters that stay unescaped.
std::string printable(std::string_view text, std::string_view kept = {});

// Text of several lines: ends of lines and tabs stay.
std::string printable_lines(std::string_view text);

// Writes text for people, which may quote files, records and peers, as printable_lines().
void print_text(std::string_view text, std::FILE* stream = stdout);

}  // namespace dslaunch
