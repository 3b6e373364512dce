#!/usr/bin/env python3
"""Every command of every README below examples/ is run, in a copy of the folder, and must succeed."""
import os
import re
import shutil
import sys
import tempfile
import unittest

import workshop


class Examples(unittest.TestCase):
    def walk(self, name):
        folder = tempfile.mkdtemp(prefix="dsl-example-")
        self.addCleanup(shutil.rmtree, folder, True)
        shutil.copytree(os.path.join(workshop.ROOT, "tools"), os.path.join(folder, "tools"))
        here = os.path.join(folder, "examples", name)
        shutil.copytree(os.path.join(workshop.ROOT, "examples", name), here)
        with open(os.path.join(here, "README.md")) as file:
            blocks = re.findall(r"```bash\n(.*?)```", file.read(), re.S)
        self.assertTrue(blocks)
        path = os.pathsep.join([os.path.dirname(sys.executable), os.path.dirname(workshop.program("dslaunch")),
                                os.environ["PATH"]])
        outcome = workshop.run(["bash", "-exc", "".join(blocks)], timeout=120, env=workshop.environment(PATH=path), cwd=here)
        self.assertEqual(outcome.code, 0, str(outcome))
        self.assertNotIn("Traceback", outcome.text)
        return outcome

    def test_own_model(self):
        self.assertIn("mean squared error", self.walk("own_model").out)

    def test_text(self):
        self.assertIn("The licen", self.walk("text").text)

    def test_images(self):
        self.assertIn("did you mean", self.walk("images").text)


if __name__ == "__main__":
    unittest.main(verbosity=2)
