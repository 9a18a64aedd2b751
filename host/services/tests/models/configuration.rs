//! The operator's configuration of model providers: what is accepted, and the errors.

use std::path::Path;

use flowcell_services::model::{Auth, Dialect, Providers};

fn parse(text: &str) -> Result<Providers, String> {
    Providers::parse(text, Path::new("")).map_err(|failure| {
        assert_eq!(failure.code, "invalid_input");
        failure.message
    })
}

#[test]
fn built_in_providers_need_no_configuration() {
    let providers = Providers::built_in().unwrap();
    let names: Vec<&str> = providers.names().collect();
    assert_eq!(names, ["anthropic", "openai", "openai-responses", "ollama", "simulated"]);
    let table = [
        ("anthropic", Dialect::Messages, Some("ANTHROPIC_API_KEY")),
        ("openai", Dialect::Chat, Some("OPENAI_API_KEY")),
        ("openai-responses", Dialect::Responses, Some("OPENAI_API_KEY")),
        ("ollama", Dialect::Chat, None),
        ("simulated", Dialect::Simulated, None),
    ];
    for (name, dialect, key) in table {
        let profile = providers.profile(name).unwrap();
        assert_eq!((profile.dialect, profile.key_env.as_deref()), (dialect, key), "{name}");
        assert_eq!((profile.max_retries, profile.timeout_ms, profile.idle_ms), (2, 600_000, 90_000), "{name}");
    }
}

#[test]
fn a_profile_changes_the_built_in_one_of_its_name() {
    let text = "default: openai\nprofiles:\n  openai: { model: m, keyFile: key.txt }\n  mine: { dialect: chat, baseUrl: 'https://a.example/v1', auth: none }\n";
    let providers = parse(text).unwrap();
    let openai = providers.profile("openai").unwrap();
    assert_eq!((openai.model.as_deref(), openai.key_env.as_deref()), (Some("m"), None));
    assert_eq!(openai.base_url.as_deref(), Some("https://api.openai.com/v1"));
    assert_eq!(providers.profile("mine").unwrap().auth, Auth::None);
    assert!(parse("").is_ok() && parse("{\"profiles\":{}}").is_ok());
}

#[test]
fn errors_name_the_wrong_member() {
    let table = [
        ("profiles: [", "providers: "),
        ("profile: {}", "did you mean `profiles`?"),
        ("default: opnai", "did you mean `openai`?"),
        (
            "profiles: { openai: { maxRetires: 1 } }",
            "providers.profiles.openai: maxRetires: unknown field `maxRetires`",
        ),
        ("profiles: { openai: { maxRetries: 11 } }", "maxRetries must be at most 10"),
        ("profiles: { openai: { maxRetries: -1 } }", "maxRetries"),
        ("profiles: { openai: { timeoutMs: 0 } }", "timeoutMs must be 1 to 3600000"),
        ("profiles: { openai: { idleMs: 0 } }", "idleMs"),
        ("profiles: { openai: { auth: digest } }", "unknown variant `digest`"),
        ("profiles: { openai: { auth: { header: 'a b' } } }", "`a b` is not the name of a header"),
        ("profiles: { openai: { keyEnv: A, keyFile: b } }", "either `keyEnv` or `keyFile`"),
        ("profiles: { openai: { headers: { 'authorization': x } } }", "`authorization`"),
        ("profiles: { openai: { headers: { 'a\\nb': x } } }", "headers"),
        ("profiles: { openai: { allowPrivate: [localhost] } }", "allowPrivate"),
        ("profiles: { openai: { baseUrl: 'ftp://x' } }", "baseUrl"),
        ("profiles: { openai: { baseUrl: 'https://u:p@x' } }", "baseUrl"),
        ("profiles: { openai: { prices: [{ model: x, input: -1, output: 1 }] } }", "is not a price"),
        ("profiles: { openai: { prices: [{ model: x, input: 1 }] } }", "prices[0]"),
        ("profiles: { openai: { script: [] } }", "only a profile of the dialect `simulated`"),
        ("profiles: { mine: { dialect: chat, auth: none } }", "`baseUrl` is missing"),
        ("profiles: { mine: { dialect: chat, baseUrl: 'https://x.example' } }", "the key is missing"),
        ("profiles: { mine: {} }", "missing field `dialect`"),
        ("profiles: { 'a/b': { dialect: simulated } }", "letters, digits"),
    ];
    for (text, sentence) in table {
        let message = parse(text).map(|_| ()).unwrap_err();
        assert!(message.contains(sentence), "{text}: {message}");
    }
}
