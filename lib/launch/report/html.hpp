// Text for an HTML page. Pure.
#pragma once
#include <string>
#include <string_view>

namespace dslaunch::launch {

// For text and for attributes in double quotes: names, configs and lines of logs come from outside. Control characters
// become visible.
std::string escape_html(std::string_view text);

// For a JSON document inside <script>: '<' would be able to end the element.
std::string escape_script_json(std::string_view json);

}  // namespace dslaunch::launch
