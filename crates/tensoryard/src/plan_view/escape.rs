//! Names from a model file, made harmless for the form that they are written in.

/// For a terminal: no control characters, which could move the cursor.
pub(super) fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() || is_direction(c) { '\u{fffd}' } else { c }).collect()
}

/// For the text and the attributes of XML and HTML.
pub(super) fn xml(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            '\n' | '\t' => escaped.push(' '),
            // XML has no way to write these at all.
            c if c.is_control() || is_direction(c) || matches!(c, '\u{fffe}' | '\u{ffff}') => {
                escaped.push('\u{fffd}');
            }
            c => escaped.push(c),
        }
    }
    escaped
}

/// For a quoted string of the DOT language, shown as it stands.
pub(super) fn dot(text: &str) -> String {
    printable(text).replace('\\', "\\\\").replace('"', "\\\"")
}

/// JSON for the inside of a `<script>` element: no character that HTML or XML would act upon.
pub(super) fn script(json: &str) -> String {
    let mut escaped = String::with_capacity(json.len());
    for c in json.chars() {
        match c {
            '<'
            | '>'
            | '&'
            | '\u{2028}'
            | '\u{2029}'
            | '\u{fffe}'
            | '\u{ffff}'
            | '\u{7f}'..='\u{9f}' => {
                escaped.push_str(&format!("\\u{:04x}", u32::from(c)));
            }
            c => escaped.push(c),
        }
    }
    escaped
}

/// Characters that turn the direction of the text around them.
fn is_direction(c: char) -> bool {
    matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}')
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOSTILE: &str = "</script><b a='1' c=\"2\">&\\\u{1b}[2J\u{202e}\u{ffff}";

    #[test]
    fn nothing_of_a_hostile_name_is_markup() {
        assert_eq!(
            xml(HOSTILE),
            "&lt;/script&gt;&lt;b a=&#39;1&#39; c=&quot;2&quot;&gt;&amp;\\\u{fffd}[2J\u{fffd}\u{fffd}"
        );
        assert_eq!(dot(HOSTILE), "</script><b a='1' c=\\\"2\\\">&\\\\\u{fffd}[2J\u{fffd}\u{ffff}");
    }

    #[test]
    fn json_in_a_script_means_what_it_meant() {
        let json = serde_json::to_string(HOSTILE).unwrap();
        let escaped = script(&json);
        assert!(!escaped.contains(['<', '>', '&']), "{escaped}");
        assert_eq!(serde_json::from_str::<String>(&escaped).unwrap(), HOSTILE);
    }
}
