//! Tasks of tokio that talk to each other over TCP and a channel; a step asks each of them.
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot};

async fn counter(stream: TcpStream) {
    let (read, mut write) = stream.into_split();
    let mut lines = BufReader::new(read).lines();
    let mut count = 0u64;
    while let Ok(Some(_)) = lines.next_line().await {
        count += 1;
        if write.write_all(format!("{count}\n").as_bytes()).await.is_err() {
            return;
        }
    }
}

async fn asker(mut asked: mpsc::Receiver<oneshot::Sender<String>>) {
    let (read, mut write) = TcpStream::connect("127.0.0.1:7001").await.expect("connect").into_split();
    let mut lines = BufReader::new(read).lines();
    while let Some(answer) = asked.recv().await {
        tokio::time::sleep(Duration::from_millis(5)).await;
        let said = match write.write_all(b"next\n").await {
            Ok(()) => match lines.next_line().await {
                Ok(Some(text)) => text,
                other => format!("failed: {other:?}"),
            },
            Err(e) => format!("failed: {e}"),
        };
        let _ = answer.send(said);
    }
}

#[tokio::main(worker_threads = 3)]
async fn main() {
    let inner = TcpListener::bind("127.0.0.1:7001").await.expect("bind");
    tokio::spawn(async move {
        while let Ok((stream, _)) = inner.accept().await {
            tokio::spawn(counter(stream));
        }
    });
    let mut tasks = Vec::new();
    for _ in 0..8 {
        let (send, receive) = mpsc::channel(4);
        tokio::spawn(asker(receive));
        tasks.push(send);
    }
    let outer = TcpListener::bind("127.0.0.1:7000").await.expect("bind");
    while let Ok((stream, _)) = outer.accept().await {
        let (read, mut write) = stream.into_split();
        let _ = BufReader::new(read).lines().next_line().await;
        let mut answers = Vec::new();
        for task in &tasks {
            let (send, receive) = oneshot::channel();
            task.send(send).await.expect("a task ended");
            answers.push(receive.await.unwrap_or_else(|e| format!("failed: {e}")));
        }
        let _ = write.write_all(format!("{}\n", answers.join(" ")).as_bytes()).await;
    }
}
