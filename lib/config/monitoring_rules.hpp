// Rules between the monitors' keys. Errors and notes are added to the settings.
#pragma once
#include "config/settings.hpp"

namespace dslaunch::config {

void apply_monitoring_rules(Settings& settings);

}  // namespace dslaunch::config
