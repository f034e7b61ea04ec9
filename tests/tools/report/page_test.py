#!/usr/bin/python3
"""Opens the page of `sluice report` in a browser.

usage: page_test.py PAGE_TEMPLATE.html [unittest arguments]

Skipped where Chromium, its driver or Selenium is missing.
"""
import contextlib
import json
import os
import sys
import tempfile
import time
import unittest

import sample_report

CHROMIUM, DRIVER = "/usr/bin/chromium", "/usr/bin/chromedriver"
TEMPLATE = ""  # set by main
# how many spans have their whole colour
SHOWN = ("const look = sluiceReport.timeline.parts[0].look, whole = look.palette.length / 6; "
         "return look.paint.filter(colour => colour < whole).length")

try:
    from selenium import webdriver
    from selenium.webdriver.chrome.options import Options
    from selenium.webdriver.chrome.service import Service
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.actions.wheel_input import ScrollOrigin
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys
except ImportError:
    webdriver = None


def missing():
    """What the test needs and this machine lacks, or nothing."""
    if webdriver is None:
        return "python3-selenium"
    return next((path for path in (CHROMIUM, DRIVER) if not os.path.exists(path)), "")


@contextlib.contextmanager
def browser(folder, *arguments):
    """A headless browser with its files in a folder, and with logs of its console and its requests."""
    options = Options()
    options.binary_location = CHROMIUM
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--window-size=1400,1000",
                     f"--user-data-dir={folder}/profile", *arguments):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    os.environ["HOME"] = folder  # Chromium writes below it
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    try:
        driver.set_script_timeout(120)
        yield driver
    finally:
        driver.quit()


def wait_until(holds, what):
    end = time.monotonic() + 20
    while not holds():
        if time.monotonic() > end:
            raise AssertionError(f"waited 20 s until {what}")
        time.sleep(0.02)


class PageTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        stack = contextlib.ExitStack()
        cls.folder = stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True))
        cls.driver = stack.enter_context(browser(cls.folder))
        cls.addClassCleanup(stack.close)
        with open(TEMPLATE, encoding="utf-8") as text:
            cls.template = text.read()

    def open(self, *reports):
        """Opens a page of these reports; fails if it has not built all of itself."""
        path = f"{self.folder}/report.html"
        with open(path, "w", encoding="utf-8") as out:
            out.write(sample_report.page_of(self.template, list(reports)))
        self.driver.get_log("browser"), self.driver.get_log("performance")
        self.driver.get(f"file://{path}")
        self.assertEqual(self.run_js("return [sluiceReport.ready, sluiceReport.errors]"), [True, []])

    def run_js(self, script, *values):
        return self.driver.execute_script(script, *values)

    def tearDown(self):
        errors = [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")]
        self.assertEqual(errors, [])
        for entry in self.driver.get_log("performance"):
            message = json.loads(entry["message"])["message"]
            if message["method"] != "Network.requestWillBeSent":
                continue
            asked, page = message["params"]["request"]["url"], message["params"]["documentURL"]
            if page.startswith("file:"):  # else a page of the browser's own
                self.assertTrue(asked == page or asked.startswith("data:"), f"the page asked for {asked}")

    def span_index(self, condition):
        """The first span of the first report of which a JavaScript condition on (s, at) holds."""
        return self.run_js(f"const s = sluiceReport.reports[0].spans; for (let at = 0; at < s.count; ++at) "
                           f"if ({condition}) return at; return -1")

    def place(self, at, part=0):
        place = self.run_js("const t = sluiceReport.timeline; t.scroller.scrollIntoView({block: 'center'}); "
                            "return t.placeOf(arguments[0], arguments[1])", part, at)
        return round(place["x"]), round(place["y"])

    def point_at(self, at):
        actions = ActionChains(self.driver)
        actions.w3c_actions.pointer_action.move_to_location(*self.place(at))
        actions.perform()
        wait_until(lambda: self.tooltip() != "", "a tooltip is shown")
        return self.tooltip()

    def tooltip(self):
        return self.driver.find_element(By.ID, "tooltip").text

    def visible(self):
        return self.run_js("return sluiceReport.visible")

    def press(self, *keys):
        timeline = self.driver.find_element(By.CSS_SELECTOR, ".timeline-scroll")
        timeline.send_keys(*keys)

    def search(self, text):
        box = self.driver.find_element(By.ID, "search")
        box.clear()
        box.send_keys(text)
        wait_until(lambda: self.run_js("return sluiceReport.searched") == text, "the search has counted matches")
        return self.run_js("return sluiceReport.matches")

    def colours(self, report=0):
        """How many colours the plot of the timeline has."""
        return self.run_js("const c = sluiceReport.timeline.canvas, p = c.getContext('2d')"
                           ".getImageData(150, 0, c.width - 150, c.height).data, found = new Set(); "
                           "for (let i = 0; i < p.length; i += 4) found.add(p[i] << 16 | p[i + 1] << 8 | p[i + 2]); "
                           "return found.size")

    def test_a_page_shows_every_section_and_asks_for_nothing(self):
        self.open(sample_report.sample(hang=True))
        sections = [each.get_attribute("id") for each in self.driver.find_elements(By.TAG_NAME, "section")]
        self.assertEqual(sections, ["hang", "timeline", "use", "roofline", "routing", "memory", "graph", "table-families",
                                    "table-waits"])
        self.assertEqual(self.run_js("return sluiceReport.spanCount"), 128)
        self.assertGreater(self.colours(), 12)

    def test_names_are_text_whatever_they_hold(self):
        self.open(sample_report.sample(hang=True))
        body = self.driver.find_element(By.TAG_NAME, "body").text
        self.assertIn('forward/<script>alert("höher")</script>', body)
        self.assertIn("<img src=x onerror=alert(1)> & “quoted”", body)
        self.assertEqual(self.run_js("return document.querySelectorAll('img, section script, header script, b').length"), 0)

    def test_pointing_at_a_task_shows_it(self):
        self.open(sample_report.sample())
        at = self.span_index("s.kind[at] === 0 && s.slot[at] === 3 && s.tile[at] === 2 && s.family[at] === 1")
        text = self.point_at(at)
        self.assertIn("forward/up_proj_swiglu[3,2]", text)
        for words in ("slot, tile\n3, 2", "rows\n93", "expert\n3", "GFLOP/s", "GB/s"):
            self.assertIn(words, text)

    def test_pointing_at_a_wait_shows_who_ended_it(self):
        self.open(sample_report.sample())
        text = self.point_at(self.span_index("s.kind[at] === 1 && s.slot[at] === 1 && s.cause[at] >= 0"))
        self.assertIn("forward/rows_in[1]", text)
        self.assertIn("ended by\nforward/dispatch[0,0]", text)
        self.assertIn("rank 1, worker 0", text)
        arrow = self.run_js("const o = sluiceReport.timeline.overlay, "
                            "p = o.getContext('2d').getImageData(0, 0, o.width, o.height).data; let count = 0; "
                            "for (let i = 3; i < p.length; i += 4) count += p[i] > 0; return count")
        self.assertGreater(arrow, 200)

    def test_a_click_pins_and_escape_lets_go(self):
        self.open(sample_report.sample())
        self.point_at(self.span_index("s.kind[at] === 0 && s.family[at] === 2"))
        ActionChains(self.driver).click().move_by_offset(0, 300).perform()
        self.assertIn("forward/down_proj", self.tooltip())
        self.press(Keys.ESCAPE)
        self.assertEqual(self.tooltip(), "")

    def test_wheel_drag_and_keys_change_what_is_visible(self):
        self.open(sample_report.sample())
        everything = self.visible()
        x, y = self.place(self.span_index("s.kind[at] === 0 && s.slot[at] === 3"))
        ActionChains(self.driver).scroll_from_origin(ScrollOrigin.from_viewport(x, y), 0, -600).perform()
        wait_until(lambda: self.visible()["to"] - self.visible()["from"] < 0.8 * everything["end"], "the wheel has zoomed")
        near = self.visible()
        actions = ActionChains(self.driver)
        actions.w3c_actions.pointer_action.move_to_location(x, y)
        actions.click_and_hold().move_by_offset(-60, 0).release().perform()
        wait_until(lambda: self.visible()["from"] > near["from"], "the range has been dragged")
        self.press("0")
        self.assertEqual(self.visible(), everything)
        self.press("+", "+")
        self.assertAlmostEqual(self.visible()["to"] - self.visible()["from"], everything["end"] / 4, delta=1)
        before = self.visible()["from"]
        self.press(Keys.ARROW_RIGHT)
        self.assertGreater(self.visible()["from"], before)
        self.press(Keys.ARROW_LEFT, "-", "-")
        self.assertAlmostEqual(self.visible()["to"], everything["end"], delta=1)

    def test_search_counts_shows_and_steps_through_matches(self):
        self.open(sample_report.sample())
        self.assertEqual(self.search("up_proj_swiglu"), 48)
        self.assertEqual(self.search("up_proj_swiglu[3,2]"), 2)
        self.assertIn("forward/up_proj_swiglu[3,2]", self.tooltip())
        matches = self.driver.find_element(By.ID, "matches")
        self.assertEqual(matches.text, "1 of 2")
        first = self.run_js("return sluiceReport.timeline.pinned")
        self.press("n")
        self.assertEqual(matches.text, "2 of 2")
        self.assertNotEqual(self.run_js("return sluiceReport.timeline.pinned"), first)
        self.press("p")
        self.assertEqual(matches.text, "1 of 2")
        self.assertEqual(self.search("slot 12"), 0)
        self.assertEqual(matches.text, "no match")
        self.assertEqual(self.search("expert 5 down_proj"), 2)
        self.assertEqual(self.search("rows_in"), 16)
        self.assertEqual(self.search("rows_in[2]"), 2)

    def test_search_fades_what_does_not_match(self):
        self.open(sample_report.sample())
        self.assertEqual(self.run_js(SHOWN), 128)
        self.search("down_proj")
        self.assertEqual(self.run_js(SHOWN), 16)

    def test_pressed_families_stay_and_all_else_fades(self):
        self.open(sample_report.sample())
        family = self.driver.find_element(By.XPATH, "//button[contains(., 'forward/down_proj')]")
        family.click()
        self.assertEqual(family.get_attribute("aria-pressed"), "true")
        self.assertEqual(self.run_js(SHOWN), 16)
        family.click()
        self.assertEqual(self.run_js(SHOWN), 128)

    def test_paper_is_light_and_the_window_stays_dark(self):
        self.open(sample_report.sample())
        self.driver.find_element(By.ID, "theme").click()
        chart = "return sluiceReport.timeline.theme.chart"
        self.run_js("dispatchEvent(new Event('beforeprint'))")
        self.assertEqual(self.run_js(chart), "#fafbfc")
        self.run_js("dispatchEvent(new Event('afterprint'))")
        self.assertEqual(self.run_js(chart), "#1a1e23")

    def test_rows_can_be_cores_and_lanes(self):
        self.open(sample_report.sample())
        self.driver.find_element(By.XPATH, "//button[text()='by core and lane']").click()
        labels = self.run_js("return sluiceReport.timeline.lines.filter(line => line.row).map(line => line.label)")
        self.assertIn("core 1 forward/main", labels)
        self.assertGreater(self.colours(), 12)

    def test_keys_step_through_the_parts_of_a_chart(self):
        self.open(sample_report.sample())
        chart = self.driver.find_element(By.CSS_SELECTOR, "#routing svg")
        chart.send_keys(Keys.ARROW_RIGHT)
        self.assertIn("expert 0 of rank 0\nrows from rank 0\n96\nrows from all\n136, 16.5%", self.tooltip())
        chart.send_keys(Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
        self.assertIn("expert 2 of rank 0", self.tooltip())
        chart.send_keys(Keys.ESCAPE)
        self.assertEqual(self.tooltip(), "")

    def test_dark_changes_the_colours(self):
        self.open(sample_report.sample())
        back = "return getComputedStyle(document.body).backgroundColor"
        self.assertEqual(self.run_js(back), "rgb(255, 255, 255)")
        self.driver.find_element(By.ID, "theme").click()
        self.assertEqual(self.run_js(back), "rgb(20, 23, 27)")
        self.assertEqual(self.run_js("return sluiceReport.timeline.theme.chart"), "#1a1e23")

    def test_two_reports_share_the_range(self):
        self.open(sample_report.sample(), sample_report.sample("slower", slow=1.3))
        heads = self.run_js("return sluiceReport.timeline.lines.filter(line => !line.row).map(line => line.label)")
        self.assertEqual(heads, ["A: moe_layer", "rank 0", "rank 1", "B: slower", "rank 0", "rank 1"])
        self.assertAlmostEqual(self.visible()["end"], 9.9e6 * 1.3, delta=1)
        self.assertEqual(len(self.driver.find_elements(By.CSS_SELECTOR, "#roofline .column")), 2)
        self.assertEqual(self.search("up_proj_swiglu[3,2]"), 4)

    def test_a_program_without_a_run_has_no_timeline(self):
        self.open(sample_report.sample(has_run=False))
        sections = [each.get_attribute("id") for each in self.driver.find_elements(By.TAG_NAME, "section")]
        self.assertEqual(sections, ["memory", "graph", "table-families"])

    def test_a_table_is_sorted_by_the_column_that_is_clicked(self):
        self.open(sample_report.sample())
        table = self.driver.find_element(By.CSS_SELECTOR, "[data-table=families]")
        column = lambda: [row.text for row in table.find_elements(By.CSS_SELECTOR, "td:nth-child(3)")]
        self.assertEqual(column(), ["10.31", "5.28", "1.37", "0.0096"])
        table.find_element(By.XPATH, ".//button[text()='ms']").click()
        self.assertEqual(table.find_element(By.CSS_SELECTOR, "th:nth-child(3)").get_attribute("aria-sort"), "descending")
        table.find_element(By.XPATH, ".//button[text()='ms']").click()
        self.assertEqual(column(), ["0.0096", "1.37", "5.28", "10.31"])

    def test_damaged_data_is_said_on_the_page(self):
        report = sample_report.sample()
        report["spans"]["slot"] = report["spans"]["slot"][:-16]
        with self.assertRaises(AssertionError):
            self.open(report)
        words = self.driver.find_element(By.TAG_NAME, "main").text
        self.assertIn("column 'slot' of the spans has 501 bytes, expected 512", words)
        self.driver.get_log("browser")


def main():
    global TEMPLATE
    if missing():
        print(f"SKIP: {missing()} is not installed")
        return
    TEMPLATE = sys.argv.pop(1)
    unittest.main()


if __name__ == "__main__":
    main()
