// Colours of warnings and errors. Pure, but for uses_color().
#pragma once
#include <string>
#include <string_view>

namespace dslaunch {

enum class ColorChoice { kAuto, kAlways, kNever };

// Throws UserError(64) for other words than auto, always and never.
ColorChoice parse_color_choice(std::string_view text);

// Whether text for this descriptor is coloured. kAuto: on a terminal that is not "dumb", unless NO_COLOR is set and not
// empty (https://no-color.org).
bool uses_color(ColorChoice choice, int fd);

// Lines with the words "warning:" and "error:" in yellow and red where they stand at the beginning or behind the
// prefixes of dslaunch ("dslaunch: ") and of ranks ("host:3| ", "[ranks 0-3] "); all other bytes stay.
std::string with_color(std::string_view lines);

}  // namespace dslaunch
