// Which parameters each optimizer and schedule accepts, and the defaults that depend on the type.
#pragma once
#include <string_view>

#include "config/settings.hpp"

namespace dslaunch::config {

void apply_optimizer_rules(Settings& settings);
void apply_scheduler_rules(Settings& settings);

// Whether that optimizer or schedule has a parameter `name`; true for types that are not implemented yet.
bool optimizer_takes(std::string_view type, std::string_view name);
bool scheduler_takes(std::string_view type, std::string_view name);

}  // namespace dslaunch::config
