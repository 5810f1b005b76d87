//! The report as one self-contained page: data, style and script in the file, nothing fetched.
//!
//! The page is well-formed XML, too. Its script puts names into the page as
//! text, never as markup; without a script, the text and the pictures remain.

use std::fmt::Write;

use super::escape::{script, xml};
use super::report::Report;
use super::text::Detail;

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

impl Report {
    /// The report as an HTML page.
    pub fn html(&self) -> String {
        // A report holds only strings, numbers and lists of them, which always serialise.
        let data = script(&serde_json::to_string(self).unwrap_or_default());
        let title = xml(&self.title);
        let mut page = String::with_capacity(data.len() + STYLE.len() + SCRIPT.len() + 4096);
        page.push_str(
            "<!DOCTYPE html>\n<html lang=\"en\" xmlns=\"http://www.w3.org/1999/xhtml\">\n<head>\n",
        );
        page.push_str("<meta charset=\"utf-8\"/>\n");
        page.push_str(
            "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n",
        );
        page.push_str("<meta name=\"color-scheme\" content=\"light dark\"/>\n");
        page.push_str("<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'\"/>\n");
        _ = write!(
            page,
            "<title>Plan of {title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n"
        );
        page.push_str("<main id=\"app\"></main>\n");
        _ = writeln!(page, "<noscript><pre>{}</pre></noscript>", self.plain_text());
        _ = writeln!(page, "<script type=\"application/json\" id=\"report\">{data}</script>");
        _ = write!(page, "<script>/*<![CDATA[*/\n{SCRIPT}/*]]>*/</script>\n</body>\n</html>\n");
        page
    }

    /// The text form, escaped line by line.
    fn plain_text(&self) -> String {
        let text = self.text(Detail::Operations);
        text.lines().map(xml).collect::<Vec<_>>().join("\n")
    }
}
