//! A declared state as a file: the text that it was read from, with the changes made since. Comments and order stay.

use anyhow::Context as _;
use toml_edit::{ArrayOfTables, DocumentMut, Item, Table, TableLike, Value, value};

use crate::disk::DiskSpec;
use crate::file::{NodeFile, TargetFile};
use crate::text::from_toml;

/// Writes a declared state into the text of its file, or into an empty one.
///
/// # Errors
/// When the text is not TOML.
pub fn text(original: &str, file: &TargetFile) -> anyhow::Result<String> {
    // Its errors quote no line, which may hold a secret; those of the editor do.
    from_toml::<toml::Table>(original).context("the configuration file")?;
    let mut document: DocumentMut =
        original.parse().map_err(|_| anyhow::anyhow!("the configuration file is not TOML"))?;
    let root = document.as_table_mut();
    if let Some(send) = file.send {
        set(root, "send", &send.to_string());
    }
    let has_list = root.get("target").is_some();
    let is_at_top = !has_list || ["iqn", "luns", "access"].iter().any(|key| root.contains_key(key));
    let mut top = None;
    if is_at_top {
        let name = root.get("iqn").and_then(Item::as_str).unwrap_or(crate::DEFAULT_IQN).to_owned();
        // Where nothing is said of a target, the first one goes to the top.
        top = file.nodes.iter().position(|node| node.name().eq_ignore_ascii_case(&name));
        if top.is_none() && !has_list && !root.contains_key("iqn") && !root.contains_key("luns") {
            top = (!file.nodes.is_empty()).then_some(0);
        }
        match top.and_then(|index| file.nodes.get(index)) {
            Some(node) => write_node(root, node)?,
            None => ["iqn", "luns", "access", "groups"].iter().for_each(|key| drop(root.remove(key))),
        }
    }
    let mut list = match root.remove("target") {
        Some(Item::ArrayOfTables(list)) => list,
        _ => ArrayOfTables::new(),
    };
    let name_of = |table: &Table| table.get("iqn").and_then(Item::as_str).unwrap_or_default().to_owned();
    list.retain(|table| file.node(&name_of(table)).is_some());
    for (index, node) in file.nodes.iter().enumerate() {
        if Some(index) == top {
            continue;
        }
        let is_own = |table: &&mut Table| name_of(table).eq_ignore_ascii_case(node.name());
        if let Some(table) = list.iter_mut().find(is_own) {
            write_node(table, node)?;
        } else {
            let mut table = Table::new();
            set(&mut table, "iqn", node.name());
            write_node(&mut table, node)?;
            list.push(table);
        }
    }
    if !list.is_empty() {
        root.insert("target", Item::ArrayOfTables(list));
    }
    Ok(document.to_string())
}

/// Sets a key to a string, unless it has it.
fn set(table: &mut Table, key: &str, text: &str) {
    if table.get(key).and_then(Item::as_str) != Some(text) {
        put(table, key, value(text));
    }
}

/// Sets a key to an item. The comments around it stay.
fn put(table: &mut dyn TableLike, key: &str, mut item: Item) {
    let Some(old) = table.get_mut(key) else {
        table.insert(key, item);
        return;
    };
    if let (Some(old), Some(new)) = (old.as_value(), item.as_value_mut()) {
        *new.decor_mut() = old.decor().clone();
    }
    *old = item;
}

fn write_node(table: &mut Table, node: &NodeFile) -> anyhow::Result<()> {
    if let Some(iqn) = &node.iqn {
        set(table, "iqn", iqn);
    }
    if let Some(groups) = &node.groups {
        let groups: Value = groups.iter().map(|&group| i64::from(group)).collect();
        put(table, "groups", value(groups));
    } else {
        table.remove("groups");
    }
    if node.luns.is_empty() {
        set(table, "luns", "none");
    } else {
        if !table.get("luns").is_some_and(Item::is_table_like) {
            table.insert("luns", Item::Table(Table::new()));
        }
        let luns = table.get_mut("luns").and_then(Item::as_table_like_mut).context("luns is no table")?;
        let gone: Vec<String> = (luns.iter().map(|(key, _)| key.to_owned()))
            .filter(|key| !node.luns.iter().any(|(number, _)| *key == number.to_string()))
            .collect();
        gone.iter().for_each(|key| drop(luns.remove(key)));
        for (number, spec) in &node.luns {
            let key = number.to_string();
            if luns.get(&key).and_then(read).as_ref() != Some(spec) {
                put(luns, &key, written(spec)?);
            }
        }
    }
    match &node.rules {
        Some(rules) if !table.get("access").is_some_and(|item| same(item, rules)) => {
            let now = toml_edit::ser::to_document(rules).context("access")?;
            put(table, "access", Item::Table(now.as_table().clone()));
        }
        None if node.access.as_ref().is_some_and(|access| access.is_closed) => {
            set(table, "access", crate::access::NOBODY);
        }
        // Without rules every initiator may log in; what said otherwise must not stay.
        None if table.contains_key("access") => set(table, "access", "open"),
        Some(_) | None => {}
    }
    Ok(())
}

/// Whether an item says the same as a table.
fn same(item: &Item, rules: &toml::Table) -> bool {
    let Some(table) = item.as_table_like() else { return false };
    let mut document = DocumentMut::new();
    for (key, item) in table.iter() {
        document.insert(key, item.clone());
    }
    document.to_string().parse::<toml::Table>().is_ok_and(|own| own == *rules)
}

/// Reads a disk of the document.
fn read(item: &Item) -> Option<DiskSpec> {
    let mut document = DocumentMut::new();
    document.insert("disk", item.clone());
    #[derive(serde::Deserialize)]
    struct Held {
        disk: crate::disk::DiskEntry,
    }
    let held: Held = toml::from_str(&document.to_string()).ok()?;
    crate::disk::parse(held.disk).ok()
}

/// A disk as an item of the document.
fn written(spec: &DiskSpec) -> anyhow::Result<Item> {
    #[derive(serde::Serialize)]
    struct Held {
        disk: crate::disk::DiskEntry,
    }
    let document = toml_edit::ser::to_document(&Held { disk: crate::disk::entry(spec) })?;
    let mut item = document.get("disk").cloned().context("a disk without text")?;
    if let Item::Table(table) = item {
        item = value(table.into_inline_table());
    }
    Ok(item)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diff::differences;
    use crate::file::parse;

    const FILE: &str = "# ours\nsend = \"auto\"\n\n[luns]\n0 = \"ram:1M\"   # the first\n1 = 'ram:2M'\n\n[access]\n# who\ninitiators = [\"iqn.a:i\"]\n";

    #[test]
    fn comments_stay_and_changes_are_written() {
        let mut file = parse(FILE).expect("file");
        assert_eq!(text(FILE, &file).expect("text"), FILE, "nothing has changed");
        let other = parse(
            "[[target]]\niqn = 'iqn.a:b'\nluns.3 = { store = 'ram:1M', serial = 'x' }\n[target.access]\naddresses = ['192.0.2.1']",
        );
        file.nodes.extend(other.expect("other").nodes);
        file.nodes[0].luns.remove(1);
        file.send = Some("nagle".parse().expect("a policy"));
        file.nodes[0].luns[0].1 = "ram:3M".parse().expect("spec");
        file.nodes[0].luns.push((7, "zero:1G".parse().expect("spec")));
        let written = text(FILE, &file).expect("text");
        for kept in ["# ours", "# the first", "# who", "[[target]]", "ram:3M"] {
            assert!(written.contains(kept), "{written}");
        }
        let again = parse(&written).unwrap_or_else(|error| panic!("{error:#}\n{written}"));
        assert_eq!(differences(&file, &again), [""; 0], "{written}");
        file.nodes[0].access = Some(crate::access::nobody().0);
        file.nodes[0].rules = None;
        let closed = parse(&text(&written, &file).expect("text")).expect("closed");
        assert!(closed.nodes[0].access.as_ref().is_some_and(|access| access.is_closed));
        // And back.
        file.nodes.truncate(1);
        file.nodes[0].luns.clear();
        file.nodes[0].access = None;
        file.nodes[0].rules = None;
        let none = text(&written, &file).expect("text");
        let again = parse(&none).unwrap_or_else(|error| panic!("{error:#}\n{none}"));
        assert!(
            again.nodes.len() == 1 && again.nodes[0].is_diskless && again.nodes[0].is_open_access,
            "{none}"
        );
    }

    #[test]
    fn errors_quote_no_line() {
        let error = text("secret = \"hunter2\nx = 1", &parse("").expect("file")).expect_err("not TOML");
        assert!(!format!("{error:#}").contains("hunter"), "{error:#}");
    }

    #[test]
    fn an_empty_file_is_filled() {
        let texts = [
            "iqn = 'iqn.a:b'\nluns.0 = 'ram:1M'",
            "[[target]]\niqn = 'iqn.a:b'\nluns.0 = 'ram:1M'\n[[target]]\niqn = 'iqn.a:c'\nluns.0 = 'ram:1M'\n[target.access]\n[[target.access.chap]]\nname = 'u'\nsecret = 'twelve bytes'\ninitiators = 'any'",
        ];
        for original in texts {
            let file = parse(original).expect(original);
            for from in ["", original] {
                let written = text(from, &file).expect("text");
                let again = parse(&written).unwrap_or_else(|error| panic!("{error:#}\n{written}"));
                assert_eq!(differences(&file, &again), [""; 0], "{written}");
                assert_eq!(again.nodes[0].rules, file.nodes[0].rules);
            }
        }
    }
}
