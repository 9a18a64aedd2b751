//! The form of a flow's input, made from its JSON Schema, and the input that a sent form stands for.

use maud::{Markup, PreEscaped, html};
use serde_json::{Map, Value, json};

use crate::{
    parts::{list, size, text},
    sent::Form,
};

/// Maximum number of objects in objects that have fields of their own. Deeper ones are a field for JSON.
const MAX_DEPTH: usize = 3;
/// Maximum number of fields. The remaining members of the input are sent as JSON.
const MAX_FIELDS: usize = 100;
/// Maximum number of characters of a title.
const MAX_TITLE_CHARS: usize = 200;

/// The kind of a field.
#[derive(Clone, Debug, PartialEq)]
enum Kind {
    Text,
    /// A text of several lines.
    LongText,
    Number,
    Boolean,
    /// One of these values.
    Choice(Vec<Value>),
    /// A list of texts or numbers, one a line. True for numbers.
    Lines(bool),
    /// A stored file.
    File,
    Json,
}

/// A field of the form.
struct Field<'a> {
    /// The JSON pointer of the value in the input, which is also the name of the field.
    pointer: String,
    kind: Kind,
    required: bool,
    schema: &'a Value,
    /// The titles of the member and of those around it. A member without a title has its name.
    label: String,
}

/// The fields of an input, in the order of the schema.
pub(crate) struct Fields<'a> {
    fields: Vec<Field<'a>>,
    /// The stored files, which fields for files offer.
    files: Vec<Value>,
    /// The number of members beyond [`MAX_FIELDS`].
    left_out: usize,
}

impl<'a> Fields<'a> {
    pub(crate) fn of(schema: &'a Value) -> Fields<'a> {
        let (mut fields, mut left_out) = (Vec::new(), 0);
        add_members(schema, ("", ""), 0, true, (&mut fields, &mut left_out));
        Fields { fields, files: Vec::new(), left_out }
    }

    /// Returns the fields with the stored files that they offer.
    pub(crate) fn with_files(self, files: &[Value]) -> Fields<'a> {
        Fields { files: files.to_vec(), ..self }
    }

    /// Returns the number of members of the input that have no field, because there are too many.
    pub(crate) fn left_out(&self) -> usize {
        self.left_out
    }

    /// Returns whether a field takes a file.
    pub(crate) fn take_files(&self) -> bool {
        self.fields.iter().any(|field| field.kind == Kind::File)
    }

    /// Returns the input that a sent form stands for, or the mistakes in it. Fields that are empty and not required are
    /// left out, so that the flow's defaults apply.
    pub(crate) fn read(&self, form: &Form) -> Result<Value, Vec<Mistake>> {
        let (mut input, mut mistakes) = (Value::Object(Map::new()), Vec::new());
        for field in &self.fields {
            let given = form.text(&field.pointer).unwrap_or_default();
            if given.is_empty() && !(field.required && field.kind == Kind::Text) {
                continue;
            }
            match field.kind.parse(given) {
                Ok(value) => put(&mut input, &field.pointer, value),
                Err(why) => mistakes.push(Mistake { pointer: field.pointer.clone(), why }),
            }
        }
        if mistakes.is_empty() { Ok(input) } else { Err(mistakes) }
    }

    /// Shows the fields with the values of a form that was sent before, and with its mistakes.
    pub(crate) fn render(&self, sent: Option<&Form>, mistakes: &[Mistake]) -> Markup {
        let (own, others): (Vec<&Mistake>, Vec<&Mistake>) =
            mistakes.iter().partition(|mistake| self.fields.iter().any(|field| field.pointer == mistake.pointer));
        html! {
            @if !mistakes.is_empty() {
                div .notice .bad role="alert" {
                    p { "The run was not started." }
                    @for mistake in others { p { (mistake.pointer) " " (mistake.why) } }
                }
            }
            @for field in &self.fields {
                (field.render(sent, &self.files, own.iter().find(|mistake| mistake.pointer == field.pointer).map(|each| each.why.as_str())))
            }
        }
    }
}

/// A mistake in a sent input.
#[derive(Debug, PartialEq)]
pub(crate) struct Mistake {
    /// The JSON pointer of the value. Empty for the whole input.
    pub(crate) pointer: String,
    pub(crate) why: String,
}

impl Mistake {
    /// Reads a mismatch of the API, such as `lines.0.amount: must be a number`.
    pub(crate) fn of(finding: &str) -> Mistake {
        let parts = finding.split_once(": ").or_else(|| finding.split_once(' '));
        let (place, why) = parts.filter(|(place, _)| !place.contains(' ')).unwrap_or(("", finding));
        let place = place.trim_matches('`');
        match place.is_empty() || place == "it" {
            true => Mistake { pointer: String::new(), why: finding.to_owned() },
            false => Mistake { pointer: format!("/{}", place.replace('.', "/")), why: why.to_owned() },
        }
    }
}

fn add_members<'a>(
    schema: &'a Value,
    (prefix, around): (&str, &str),
    depth: usize,
    required: bool,
    (fields, left_out): (&mut Vec<Field<'a>>, &mut usize),
) {
    let Some(members) = schema["properties"].as_object() else { return };
    for (name, member) in members {
        let pointer = format!("{prefix}/{}", name.replace('~', "~0").replace('/', "~1"));
        let required = required && list(schema, "required").iter().any(|needed| needed == name.as_str());
        let title = Some(text(member, "title").trim()).filter(|title| !title.is_empty()).unwrap_or(name);
        let title: String = title.chars().take(MAX_TITLE_CHARS).collect();
        let label = if around.is_empty() { title } else { format!("{around} › {title}") };
        let is_file = Kind::of(member) == Kind::File;
        let nested =
            !is_file && text(member, "type") == "object" && member["properties"].is_object() && depth < MAX_DEPTH;
        match nested {
            true => add_members(member, (&pointer, &label), depth + 1, required, (&mut *fields, &mut *left_out)),
            false if fields.len() < MAX_FIELDS => {
                fields.push(Field { pointer, kind: Kind::of(member), required, schema: member, label });
            }
            false => *left_out += 1,
        }
    }
}

/// Puts a value at a JSON pointer, and makes the objects on the way.
fn put(input: &mut Value, pointer: &str, value: Value) {
    let mut place = input;
    for name in pointer.split('/').skip(1) {
        place = &mut place[name.replace("~1", "/").replace("~0", "~")];
    }
    *place = value;
}

impl Kind {
    fn of(schema: &Value) -> Kind {
        if schema["properties"]["kind"]["const"] == "file" {
            return Kind::File;
        }
        if let Some(values) = schema["enum"].as_array().filter(|values| !values.is_empty()) {
            return Kind::Choice(values.clone());
        }
        match text(schema, "type") {
            "string" if schema["maxLength"].as_u64().is_some_and(|most| most > 200) => Kind::LongText,
            "string" => Kind::Text,
            "integer" | "number" => Kind::Number,
            "boolean" => Kind::Boolean,
            "array" => match text(&schema["items"], "type") {
                "string" => Kind::Lines(false),
                "integer" | "number" => Kind::Lines(true),
                _ => Kind::Json,
            },
            _ => Kind::Json,
        }
    }

    fn parse(&self, given: &str) -> Result<Value, String> {
        let number = |text: &str| match serde_json::from_str(text.trim()) {
            Ok(Value::Number(number)) => Ok(Value::Number(number)),
            _ => Err(format!("must be a number, not `{text}`")),
        };
        match self {
            Kind::Text | Kind::LongText => Ok(given.into()),
            Kind::Number => number(given),
            Kind::Boolean => Ok((given == "true").into()),
            Kind::Choice(values) => {
                let chosen = given.parse().ok().and_then(|index: usize| values.get(index));
                chosen.cloned().ok_or_else(|| "must be one of the given values".to_owned())
            }
            Kind::Lines(numbers) => {
                let lines = given.lines().filter(|line| !line.trim().is_empty());
                lines.map(|line| if *numbers { number(line) } else { Ok(line.into()) }).collect()
            }
            Kind::Json | Kind::File => serde_json::from_str(given).map_err(|error| format!("is not JSON: {error}")),
        }
    }

    fn hint(&self) -> &'static str {
        match self {
            Kind::Lines(_) => "One item a line.",
            Kind::Json => "As JSON.",
            _ => "",
        }
    }
}

/// Returns a value for an attribute or a text field, in which every character keeps its meaning when it is sent back.
pub(crate) fn exact(value: &str) -> PreEscaped<String> {
    let plain = |c: char| c == '\n' || (' '..='~').contains(&c) && !['&', '<', '>', '"', '\''].contains(&c);
    let mut out = String::with_capacity(value.len());
    for c in value.chars() {
        match plain(c) || c.is_alphanumeric() {
            true => out.push(c),
            false => out.push_str(&format!("&#{};", u32::from(c))),
        }
    }
    PreEscaped(out)
}

impl Field<'_> {
    fn render(&self, sent: Option<&Form>, files: &[Value], mistake: Option<&str>) -> Markup {
        let pointer = &self.pointer;
        let (id, about) = (format!("field{pointer}"), format!("about{pointer}"));
        let given = sent.map(|form| form.text(pointer).unwrap_or_default().to_owned());
        let given = given.unwrap_or_else(|| self.usual());
        let (label, invalid) = (&self.label, mistake.map(|_| "true"));
        let example = list(self.schema, "examples").first().map(Value::to_string);
        html! {
            div .field {
                label for=(id) { (label) @if self.required { span .faint { " required" } } }
                @match &self.kind {
                    Kind::Text | Kind::Number => {
                        input id=(id) name=(pointer) value=(exact(&given)) aria-describedby=(about) aria-invalid=[invalid]
                            inputmode=[(self.kind == Kind::Number).then_some("decimal")] autocomplete="off";
                    }
                    Kind::LongText | Kind::Lines(_) | Kind::Json => {
                        textarea id=(id) name=(pointer) rows="3" aria-describedby=(about) aria-invalid=[invalid] spellcheck="false" { "\n" (exact(&given)) }
                    }
                    Kind::Boolean => {
                        select id=(id) name=(pointer) aria-describedby=(about) {
                            @if !self.required { option value="" { "not set" } }
                            @for value in ["true", "false"] { option value=(value) selected[value == given] { (value) } }
                        }
                    }
                    Kind::File => {
                        select id=(id) name=(pointer) aria-describedby=(about) aria-invalid=[invalid] {
                            option value="" { @if self.required { "choose a stored file, or store one" } @else { "none" } }
                            @for file in files {
                                @let value = file_value(file).to_string();
                                option value=(exact(&value)) selected[value == given] { (text(file, "name")) " (" (size(file["size"].as_u64().unwrap_or(0))) ")" }
                            }
                        }
                        div data-needs-script hidden {
                            input type="file" data-upload=(id) aria-label={ "Store a file for " (label) };
                        }
                    }
                    Kind::Choice(values) => {
                        select id=(id) name=(pointer) aria-describedby=(about) {
                            @if !self.required { option value="" { "not set" } }
                            @for (index, value) in values.iter().enumerate() {
                                option value=(index) selected[index.to_string() == given] { (shown(value)) }
                            }
                        }
                    }
                }
                p .hint id=(about) {
                    @if let Some(why) = mistake { strong .bad { (label) " " (why) } " " }
                    (text(self.schema, "description")) " " (self.kind.hint()) " "
                    @if let Some(example) = example { "Example: " code { (example) } }
                }
            }
        }
    }

    /// Returns the default of the schema as the field shows it.
    fn usual(&self) -> String {
        let Some(value) = self.schema.get("default") else { return String::new() };
        match &self.kind {
            Kind::Choice(values) => {
                values.iter().position(|each| each == value).map(|index| index.to_string()).unwrap_or_default()
            }
            Kind::Lines(_) => value.as_array().into_iter().flatten().map(shown).collect::<Vec<_>>().join("\n"),
            Kind::Json => serde_json::to_string_pretty(value).unwrap_or_default(),
            _ => shown(value),
        }
    }
}

/// Returns the value of a stored file in the input of a flow.
fn file_value(file: &Value) -> Value {
    let mut value = json!({ "kind": "file", "fileId": file["fileId"], "size": file["size"], "mime": file["mime"] });
    if file["name"].is_string() {
        value["name"] = file["name"].clone();
    }
    value
}

fn shown(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;
    use crate::sent::form_of;

    fn schema() -> Value {
        json!({ "type": "object", "required": ["name", "size"], "properties": {
            "name": { "type": "string", "description": "<img onerror=x>" },
            "size": { "enum": ["small", 7, null] },
            "amount": { "type": "number", "default": 2.5 },
            "urgent": { "type": "boolean" },
            "tags": { "type": "array", "items": { "type": "string" } },
            "counts": { "type": "array", "items": { "type": "integer" } },
            "a/b~c": { "type": "object", "properties": { "deep": { "type": "string" } } },
            "any": {},
        } })
    }

    #[test]
    fn each_kind_of_field_is_read_and_empty_ones_are_left_out() {
        let schema = schema();
        let fields = Fields::of(&schema);
        let table = [
            (vec![("/name", "Ada"), ("/size", "1")], json!({ "name": "Ada", "size": 7 })),
            (vec![("/name", ""), ("/amount", ""), ("/size", "2")], json!({ "name": "", "size": null })),
            (
                vec![("/name", "x"), ("/amount", "12345678901234567890.5"), ("/urgent", "false")],
                json!({ "name": "x", "amount": 12345678901234567890.5, "urgent": false }),
            ),
            (
                vec![("/tags", "a b\n\n c"), ("/counts", "1\n2"), ("/a~1b~0c/deep", "d"), ("/any", "[1, {}]")],
                json!({ "name": "", "tags": ["a b", " c"], "counts": [1, 2], "a/b~c": { "deep": "d" }, "any": [1, {}] }),
            ),
        ];
        for (sent, input) in table {
            assert_eq!(fields.read(&form_of(&sent)), Ok(input), "{sent:?}");
        }
    }

    #[test]
    fn a_title_takes_the_place_of_a_name() {
        let schema = json!({ "properties": {
            "item": { "type": "string", "title": "<b>Article" },
            "to": { "type": "object", "title": "Address", "properties": {
                "city": { "type": "string", "title": " " }, "a/b": { "type": "string", "title": 7 } } },
            "note": { "type": "string", "title": "x".repeat(5_000) },
        } });
        let page = Fields::of(&schema).render(None, &[]).into_string();
        for label in ["&lt;b&gt;Article</label>", "Address › city</label>", "Address › a/b</label>"] {
            assert!(page.contains(label), "{label}: {page}");
        }
        assert!(page.contains(r#"name="/item""#) && page.matches('x').count() < 500, "{page}");
    }

    #[test]
    fn a_field_for_a_file_offers_the_stored_files() {
        let file =
            json!({ "properties": { "kind": { "const": "file" }, "fileId": {} }, "required": ["kind", "fileId"] });
        let schema = json!({ "required": ["photo"], "properties": { "photo": file, "name": { "type": "string" } } });
        let files = [json!({ "fileId": "f1", "name": "<img>.png", "size": 2_048, "mime": "image/png", "created": 1 })];
        let fields = Fields::of(&schema).with_files(&files);
        assert!(fields.take_files() && !Fields::of(&json!({})).take_files());
        let page = fields.render(None, &[]).into_string();
        assert!(page.contains("&lt;img&gt;.png (2.0 KiB)") && page.contains(r#"data-upload="field/photo""#), "{page}");
        let value = file_value(&files[0]);
        let sent = form_of(&[("/photo", &value.to_string())]);
        assert_eq!(fields.read(&sent), Ok(json!({ "photo": value })));
        assert!(fields.read(&form_of(&[("/photo", "f1")])).is_err());
    }

    #[test]
    fn mistakes_are_at_their_fields() {
        let schema = schema();
        let fields = Fields::of(&schema);
        let form = form_of(&[("/name", "x"), ("/amount", "many"), ("/size", "9"), ("/any", "{"), ("/counts", "1\nx")]);
        let mistakes = fields.read(&form).unwrap_err();
        let places: Vec<_> = mistakes.iter().map(|mistake| mistake.pointer.as_str()).collect();
        assert_eq!(places, ["/size", "/amount", "/counts", "/any"]);
        let page = fields.render(Some(&form), &mistakes).into_string();
        assert!(page.contains("amount must be a number, not `many`"), "{page}");
        assert!(page.contains(r#"value="many""#) && page.matches(r#"aria-invalid="true""#).count() == 3, "{page}");
        assert!(!page.contains("<img"), "{page}");
    }

    #[test]
    fn mismatches_of_the_api_name_their_field() {
        let table = [
            ("amount: must be a number", "/amount", "must be a number"),
            ("lines.0.sku: is too short", "/lines/0/sku", "is too short"),
            ("it must be an object, not a text", "", "it must be an object, not a text"),
            ("two words: here", "", "two words: here"),
        ];
        for (finding, pointer, why) in table {
            assert_eq!(Mistake::of(finding), Mistake { pointer: pointer.into(), why: why.into() });
        }
    }

    #[test]
    fn a_value_keeps_its_deceptive_characters_when_it_is_sent_back() {
        assert_eq!(exact("a\u{202e}<\"&'b").0, "a&#8238;&#60;&#34;&#38;&#39;b");
    }
}
