// Numbers as people read them. Pure.
#pragma once
#include <chrono>
#include <cstdint>
#include <string>

namespace dslaunch {

// "635 kFLOP"
std::string quantity(int64_t count, const char* unit);
// "2,783,959,040"
std::string with_separators(int64_t count);

// Four decimals, or three digits and an exponent where those would be many digits or few: 2.3145, 1.95e+30, 4.20e-05.
std::string format_loss(double loss);
// Three significant digits, with an exponent only for uncommon magnitudes: 0.412, 3.46, 142.
std::string format_ms(double ms);
// 7.2k, 1.35M; at most four characters before the letter.
std::string format_rate(double per_second);
// "850 ms", "42.3 s", "3 min 7 s", "2 h 5 min", "3 d 4 h".
std::string format_time(std::chrono::milliseconds time);

}  // namespace dslaunch
