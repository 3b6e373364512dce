// Which parameters an optimizer or a schedule takes, and the defaults that differ by type.
#pragma once
#include <string_view>

#include "config/settings.hpp"

namespace dslaunch::config {

void apply_optimizer_rules(Settings& settings);
void apply_scheduler_rules(Settings& settings);

// Whether `name` is among the parameters of that optimizer or schedule; true for types that are not built yet.
bool optimizer_takes(std::string_view type, std::string_view name);
bool scheduler_takes(std::string_view type, std::string_view name);

}  // namespace dslaunch::config
