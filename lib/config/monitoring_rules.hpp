// What the monitors' keys ask of each other. Complaints and notes go into the settings.
#pragma once
#include "config/settings.hpp"

namespace dslaunch::config {

void apply_monitoring_rules(Settings& settings);

}  // namespace dslaunch::config
