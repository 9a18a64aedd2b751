//! Tests the proposal “Flow Services v1” in its order: its example, its three tests, and its simulated services. The
//! image endpoint is called over HTTP.

use std::fs;

use flowcell_services::images::sample;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    kit::{output_of, root, stderr, stdout},
    services::fake::{Fake, Reply},
};

/// Returns a folder with a script, two images, and the endpoint as the service `img`.
fn place(script: &str, fake: &Fake) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, content: &[u8]| fs::write(folder.path().join(name), content).unwrap();
    let setting = json!({ "img": { "images": { "baseUrl": format!("http://{}/v1", fake.address), "auth": "none",
        "maxRetries": 0, "allowPrivate": [fake.address.to_string()] } } });
    write("services.yaml", setting.to_string().as_bytes());
    write("flow.flow.js", script.as_bytes());
    write("logo.png", &sample([1, 0, 0]));
    write("photo.png", &sample([2, 0, 0]));
    folder
}

/// Runs the script of a folder. Returns the output of `run --json`.
fn run(folder: &TempDir, more: &[&str]) -> Value {
    let run = ["run", "flow.flow.js", "--json", "--quiet", "--store", "memory:", "--services", "services.yaml"];
    let output = output_of(folder.path(), &[&run[..], more].concat());
    serde_json::from_str(&stdout(&output)).unwrap_or_else(|error| panic!("{error}: {}", stderr(&output)))
}

/// Starts an endpoint that returns the same image for each request.
fn endpoint() -> Fake {
    Fake::start(|_, _| Reply::Image(sample([3, 0, 0])))
}

#[test]
fn author_facing_api_the_example_puts_the_logo_into_the_photo() {
    let fake = endpoint();
    let folder = place(&fs::read_to_string(root().join("flows/script/logo.flow.js")).unwrap(), &fake);
    let ended = run(&folder, &["-i", "logo=@logo.png", "-i", "photo=@photo.png", "--out", "made"]);
    assert_eq!((&ended["status"], &ended["result"]), (&json!("succeeded"), &json!(null)), "{ended}");
    let image = &ended["outputs"]["result"];
    assert_eq!((&image["kind"], &image["mime"]), (&json!("file"), &json!("image/png")), "{ended}");
    let saved: Vec<_> = fs::read_dir(folder.path().join("made")).unwrap().map(|file| file.unwrap().path()).collect();
    assert_eq!(saved.iter().map(|file| fs::read(file).unwrap()).collect::<Vec<_>>(), [sample([3, 0, 0])]);
    let [seen] = &fake.seen()[..] else { panic!("it was asked {} times", fake.seen().len()) };
    let sent: Vec<_> = seen.parts().into_iter().map(|(_, bytes)| bytes).collect();
    let expected = [sample([1, 0, 0]), sample([2, 0, 0]), b"Blend the logo into the photo".to_vec()];
    assert_eq!(sent, expected, "the bytes of both images, and the prompt");
}

#[test]
fn test_1_a_call_of_img_is_proxied_to_the_host_and_resolves_to_its_value() {
    let fake = endpoint();
    let script = "export async function run(services) {
        const image = await services.img([services.inputs.photo], 'Warmer', { size: '64x64' });
        return [image.kind, typeof image.fileId, image.meta.model];
    }";
    let ended = run(&place(script, &fake), &["-i", "photo=@photo.png"]);
    assert_eq!(ended["result"], json!(["file", "string", "fake"]), "{ended}");
    let asked: Vec<_> = fake.seen().iter().map(|seen| (seen.path.clone(), seen.prompt())).collect();
    assert_eq!(asked, [("/v1/images/edits".to_owned(), "Warmer".to_owned())]);
}

#[test]
fn test_2_outputs_are_by_their_ids_in_the_result_of_the_run() {
    let script = "export function run(services) { services.outputs('text', 'a'); services.outputs('list', [1, null]); return 7 }";
    let ended = run(&place(script, &endpoint()), &[]);
    assert_eq!(
        (&ended["outputs"], &ended["result"]),
        (&json!({ "text": "a", "list": [1, null] }), &json!(7)),
        "{ended}"
    );
}

#[test]
fn test_3_an_error_of_the_host_rejects_the_promise_and_its_text_is_told() {
    let fake = Fake::start(|_, _| Reply::Refused(400, "no such size"));
    let script = "export async function run(services) {\n  await services.img(null, 'A cat', { size: '1x' });\n}";
    let error = run(&place(script, &fake), &[])["error"].clone();
    assert_eq!((&error["code"], &error["task"]), (&json!("script_failed"), &json!("script")), "{error}");
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("no such size") && message.contains("(flow.flow.js:2:"), "{error}");
    let details = &error["details"];
    assert_eq!((&details["service"], &details["line"]), (&json!("img"), &json!(2)), "{error}");
    let caught = "export const run = services => services.img(null, 'A cat').catch(e => e.message)";
    let ended = run(&place(caught, &fake), &[]);
    assert!(ended["result"].as_str().unwrap().contains("no such size"), "{ended}");
}

#[test]
fn test_runs_simulated_services_answer_as_documented() {
    let script = "export async function run(services) {
        services.outputs('image', await services.img([services.inputs.photo], 'Blend', { size: '64x64' }));
        services.outputs('text', await services.agent('Hello'));
    }";
    let fake = endpoint();
    let folder = place(script, &fake);
    let test = ["test", "flow.flow.js", "--simulate", "img,agent", "--json", "-i", "photo=@photo.png"];
    let tried = output_of(folder.path(), &test);
    assert!(tried.status.success(), "{}", stderr(&tried));
    let outputs = serde_json::from_str::<Value>(&stdout(&tried)).unwrap()["outputs"].clone();
    let meta = json!({ "simulated": true, "prompt": "Blend", "options": { "size": "64x64" } });
    assert_eq!(outputs["image"], json!({ "kind": "file", "fileId": outputs["image"]["fileId"], "meta": meta }));
    assert!(outputs["image"]["fileId"].is_string(), "{outputs}");
    let text = json!({ "kind": "text", "value": "simulated reply to: Hello",
        "meta": { "simulated": true, "inputSummary": "Hello" } });
    assert_eq!(outputs["text"], text);
    assert_eq!(fake.seen().len(), 0, "nothing leaves");
}
